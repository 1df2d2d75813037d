package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// Exit codes of the daemon.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

const long = `loxilb balances TCP and UDP connections in the kernel, by eBPF programs at the tc hook. It is
controlled through a REST API, for which loxicmd is the command line. The programs stay and go on
balancing when the daemon exits; loxilb --detach takes everything away.`

// usageError marks what the user wrote wrong, in contrast to what failed.
type usageError struct{ error }

// Command is the daemon's command line: it checks the flags and calls run. lookup reads the environment
// (os.LookupEnv).
func Command(version string, lookup func(string) (string, bool), run func(context.Context, *Config) error) *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:               "loxilb",
		Short:             "layer-4 load balancer in eBPF",
		Long:              long,
		Version:           version,
		Args:              cobra.NoArgs,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := parse(cmd, f, lookup)
			if err != nil {
				return usageError{err}
			}
			return run(cmd.Context(), c)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	f.register(fs)
	registerContract(fs)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	return cmd
}

func parse(cmd *cobra.Command, f *flags, lookup func(string) (string, bool)) (*Config, error) {
	fs := cmd.Flags()
	notes, err := checkContract(fs)
	if err != nil {
		return nil, err
	}
	origin, err := fromEnv(fs, lookup)
	if err != nil {
		return nil, err
	}
	c, err := f.check(func(flag string) string {
		if o, ok := origin[flag]; ok {
			return o
		}
		return "--" + flag
	})
	if err != nil {
		return nil, err
	}
	c.Notes = notes
	return c, nil
}

// Main runs the daemon's command line and returns its exit code. Errors go to stderr, one sentence each.
func Main(ctx context.Context, version string, args []string, stdout, stderr io.Writer, run func(context.Context, *Config) error) int {
	cmd := Command(version, os.LookupEnv, run)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	fmt.Fprintln(stderr, "loxilb: "+err.Error())
	if ue := (usageError{}); errors.As(err, &ue) {
		return ExitUsage
	}
	return ExitFailed
}
