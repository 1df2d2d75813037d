// Package cli is loxicmd: each command is a request to the REST API, or a few, and a way to print the answer.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes of loxicmd.
const (
	ExitOK          = 0
	ExitRefused     = 1 // the server refused, or its answer was not understood
	ExitUsage       = 2
	ExitUnreachable = 3
)

// Env is what a run of loxicmd reads and writes.
type Env struct {
	Version string // of loxicmd itself
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
}

// failure is an error with an exit code; any other error is one of usage.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func refused(format string, args ...any) error {
	return &failure{ExitRefused, fmt.Errorf(format, args...)}
}

// Main runs a command line (without the program's name) and returns the exit code.
func Main(ctx context.Context, env Env, args []string) int {
	root := Root(env)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	fmt.Fprintln(env.Stderr, "Error: "+err.Error())
	var f *failure
	if errors.As(err, &f) {
		return f.code
	}
	return ExitUsage
}

// Root is the tree of commands.
func Root(env Env) *cobra.Command {
	o := &options{env: env}
	root := &cobra.Command{
		Use:   "loxicmd",
		Short: "command line of the load balancer loxilb",
		Long: "loxicmd creates, shows and deletes what loxilb balances, through its REST API.\n\n" +
			"It exits with 0 when all went well, 1 when the server refused (the reason is on standard error),\n" +
			"2 when the command line is wrong, 3 when the server can't be reached.",
		Example:       "  loxicmd create lb 20.20.20.1 --tcp=2020:5001 --endpoints=31.31.31.1:1,32.32.32.1:1\n  loxicmd get lb -o wide",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(flagError)
	o.register(root.PersistentFlags())
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return o.check() }
	create := &cobra.Command{
		Use: "create", Short: "create or update what is balanced", Args: noObject,
		Example: "  loxicmd create lb 20.20.20.1 --tcp=2020:5001 --endpoints=31.31.31.1:1,32.32.32.1:1\n  loxicmd create -f services.yaml",
	}
	create.RunE = createFile(o, create)
	create.AddCommand(createLB(o), createEndpoint(o))
	get := &cobra.Command{
		Use: "get", Short: "show what is there", Example: "  loxicmd get lb -o wide\n  loxicmd get status --failed\n  loxicmd get ct", Args: noObject, RunE: needObject,
	}
	get.AddCommand(getLB(o), getCT(o), getDrain(o), getEndpoint(o), getStatus(o), getEvents(o), getVersion(o))
	del := &cobra.Command{
		Use: "delete", Short: "delete what is balanced", Example: "  loxicmd delete lb 20.20.20.1 --tcp=2020", Args: noObject, RunE: needObject,
	}
	del.AddCommand(deleteLB(o), deleteEndpoint(o))
	describe := &cobra.Command{
		Use: "describe", Short: "show all that is known of one object", Example: "  loxicmd describe lb web", Args: noObject, RunE: needObject,
	}
	describe.AddCommand(describeLB(o))
	kill := &cobra.Command{
		Use: "kill", Short: "end connections", Example: "  loxicmd kill ct --source=100.100.100.7", Args: noObject, RunE: needObject,
	}
	kill.AddCommand(killCT(o))
	drain := &cobra.Command{
		Use: "drain", Short: "have endpoints take no new connections", Example: "  loxicmd drain endpoint 31.31.31.1:5001 --deadline=60s", Args: noObject, RunE: needObject,
	}
	drain.AddCommand(drainEndpoint(o))
	undrain := &cobra.Command{
		Use: "undrain", Short: "let them take new connections again", Example: "  loxicmd undrain endpoint 31.31.31.1:5001", Args: noObject, RunE: needObject,
	}
	undrain.AddCommand(undrainEndpoint(o))
	set := &cobra.Command{
		Use: "set", Short: "change one thing of what is balanced", Example: "  loxicmd set endpoint 31.31.31.1:5001 --weight=5", Args: noObject, RunE: needObject,
	}
	set.AddCommand(setEndpoint(o))
	root.AddCommand(create, get, describe, del, set, kill, drain, undrain, applyCommand(o), versionCommand(o))
	return root
}

// noObject refuses the word behind a verb that no subcommand took.
func noObject(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s knows no %q, only %s", cmd.CommandPath(), args[0], strings.Join(objects(cmd), ", "))
}

func needObject(cmd *cobra.Command, _ []string) error {
	return fmt.Errorf("%s what? One of %s", cmd.CommandPath(), strings.Join(objects(cmd), ", "))
}

func objects(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	slices.Sort(names)
	return names
}
