// Package cli is loxicmd: each command sends one or a few requests to the REST API and prints the
// answer.
package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"loxilb/internal/cli/files"
	"loxilb/internal/cli/session"
	"loxilb/internal/host/commandline"

	"github.com/spf13/cobra"
)

// Main runs a command line (without the program's name) and returns the exit code.
func Main(ctx context.Context, env session.Env, args []string) int {
	root := Root(env)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return session.ExitOK
	}
	if errors.As(err, &files.ErrPlanned{}) {
		return session.ExitPlanned
	}
	var f *session.Failure
	if errors.As(err, &f) && f.Error() == "" {
		return f.Code // the answer was printed
	}
	if errors.As(err, &f) {
		fmt.Fprintln(env.Stderr, "Error: "+err.Error())
		if cmd.Name() == files.PlanName {
			return session.ExitRefused // 2 means that there are changes
		}
		return f.Code
	}
	// An unknown flag is reported before a missing command.
	if missing := missingCommand(root, args); missing != nil {
		err = missing
	}
	fmt.Fprintln(env.Stderr, "Error: "+session.AsTyped(cmd, err.Error()))
	if cmd.Name() == files.PlanName {
		return session.ExitRefused // 2 means that there are changes
	}
	return session.ExitUsage
}

// Root returns the tree of commands.
func Root(env session.Env) *cobra.Command {
	o := &session.Options{Env: env}
	root := &cobra.Command{
		Use:   "loxicmd",
		Short: "Command line of the load balancer loxilb",
		Long: "loxicmd manages the services and other objects of loxilb through its REST API.\n\n" +
			"Exit codes: 0 success, 1 refused by the server (the reason is on standard error), 2 wrong command\n" +
			"line, 3 server unreachable, 4 explain found that the packet does not arrive.",
		Example:       "  loxicmd create lb 20.20.20.1 --tcp=2020:5001 --endpoints=31.31.31.1:1,32.32.32.1:1\n  loxicmd get lb -o wide",
		Version:       env.Build.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.InitDefaultVersionFlag()
	root.SetVersionTemplate("loxicmd {{.Version}}\n" + env.Build.Lines())
	root.SetFlagErrorFunc(commandline.FlagError)
	o.Register(root.PersistentFlags())
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return o.Check(cmd) }
	addCommands(root, o)
	addOptions(root)
	_ = root.RegisterFlagCompletionFunc("context", func(_ *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) { // fails only for unknown flags
		return o.ContextNames(begin), cobra.ShellCompDirectiveNoFileComp
	})
	return root
}

// addOptions makes the help list the global flags in one place, and the help of each command refer
// to it.
func addOptions(root *cobra.Command) {
	root.AddCommand(&cobra.Command{
		Use:     "options",
		Short:   "Show the flags that all commands take",
		Example: "  loxicmd options",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(root.OutOrStdout(), "All commands take these flags:\n\n"+root.PersistentFlags().FlagUsages())
			return err
		},
	})
	const inherited = "Global Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}"
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), inherited, `Use "loxicmd options" for the flags of all commands, such as --server and -o.`, 1))
}
