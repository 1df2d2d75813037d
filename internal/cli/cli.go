// Package cli is loxicmd: each command is a request to the REST API, or a few, and a way to print the answer.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Exit codes of loxicmd.
const (
	ExitOK          = 0
	ExitRefused     = 1 // the server refused, or its answer was not understood
	ExitUsage       = 2
	ExitUnreachable = 3

	ExitPlanned = 2 // of plan: there is something to do
)

// Env is what a run of loxicmd reads and writes.
type Env struct {
	Version string // of loxicmd itself
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer

	TokenFile string // where a token is kept; empty: where the contract has it
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
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	if errors.As(err, &errPlanned{}) {
		return ExitPlanned
	}
	var f *failure
	if errors.As(err, &f) {
		fmt.Fprintln(env.Stderr, "Error: "+err.Error())
		if cmd.Name() == planName {
			return ExitRefused // 2 says that there is something to do
		}
		return f.code
	}
	// A flag of a command that is not there is found before the command is missed.
	if missing := missingCommand(root, args); missing != nil {
		err = missing
	}
	fmt.Fprintln(env.Stderr, "Error: "+err.Error())
	if cmd.Name() == planName {
		return ExitRefused // 2 says that there is something to do
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
	root.AddCommand(createVerb(o), getVerb(o), describeVerb(o), deleteVerb(o), setVerb(o), killVerb(o), drainVerb(o), undrainVerb(o),
		applyCommand(o),
		saveCommand(o), importCommand(o), exportCommand(o), planCommand(o), confirmCommand(o), rollbackCommand(o), versionCommand(o))
	return root
}
