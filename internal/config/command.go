package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"loxilb/internal/host/commandline"
)

// Exit codes of the daemon.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
	// ExitDrained is the exit code after a drain with --exit: service managers do not start the
	// daemon again (RestartPreventExitStatus of systemd).
	ExitDrained = 75
)

const longHelp = `loxilb balances TCP, UDP and SCTP in the kernel, by eBPF programs at the tc hook. It is
controlled through a REST API; loxicmd is its command line. The programs remain attached and go on
balancing when the daemon exits; loxilb --detach removes everything.`

// ErrDrained is the result of a run that ends because the node was drained.
var ErrDrained = errors.New("the node is drained")

// failedError marks a failure, as opposed to a wrong command line.
type failedError struct{ error }

func (e failedError) Unwrap() error { return e.error }

// Command returns the daemon's command line: it checks the flags and calls run. version returns the
// text of --version; lookup reads the environment (os.LookupEnv).
func Command(version func() (string, error), lookup func(string) (string, bool), run func(context.Context, *Config) error) *cobra.Command {
	f := &flags{}
	var helpAll, showVersion bool
	cmd := &cobra.Command{
		Use:               "loxilb",
		Short:             "layer-4 load balancer in eBPF",
		Long:              longHelp,
		Args:              cobra.NoArgs,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				return printVersion(cmd.OutOrStdout(), version)
			}
			if helpAll {
				showContract(cmd.Flags())
				return cmd.Help()
			}
			c, err := parse(cmd, f, lookup)
			if err != nil {
				return err
			}
			if err := run(cmd.Context(), c); err != nil {
				return failedError{err}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(commandline.FlagError)
	fs := cmd.Flags()
	fs.SortFlags = false
	f.register(fs)
	registerContract(fs)
	fs.BoolVarP(&showVersion, "version", "v", false, "show version, commit, Go and the object ABI; builds with the same object ABI take over without loss")
	fs.BoolVar(&helpAll, "help-all", false, "show help including flags of earlier loxilb that have no effect or are refused")
	return cmd
}

func printVersion(out io.Writer, version func() (string, error)) error {
	text, err := version()
	if err != nil {
		return failedError{err}
	}
	_, err = io.WriteString(out, text)
	return err
}

func parse(cmd *cobra.Command, f *flags, lookup func(string) (string, bool)) (*Config, error) {
	fs := cmd.Flags()
	origin, err := fromEnv(fs, lookup)
	if err != nil {
		return nil, err
	}
	if f.compat {
		if err := f.setCompatDefaults(fs); err != nil {
			return nil, err
		}
	}
	notes, err := checkContract(fs, f.compat)
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
	if c.Cluster.Refused != "" {
		c.Notes = append(c.Notes, c.Cluster.Refused)
	}
	return c, nil
}

// Main runs the daemon, or a subcommand, and returns its exit code. Errors go to stderr, one
// sentence each.
func Main(ctx context.Context, version func() (string, error), args []string, stdout, stderr io.Writer, run func(context.Context, *Config) error, sub ...*cobra.Command) int {
	cmd := Command(version, os.LookupEnv, run)
	cmd.AddCommand(sub...)
	return execute(ctx, cmd, args, stdout, stderr)
}

func execute(ctx context.Context, cmd *cobra.Command, args []string, stdout, stderr io.Writer) int {
	if args == nil {
		args = []string{} // otherwise cobra uses the arguments of the process
	}
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	if errors.Is(err, ErrDrained) {
		return ExitDrained
	}
	fmt.Fprintln(stderr, "loxilb: "+err.Error())
	if failed := (failedError{}); errors.As(err, &failed) {
		return ExitFailed
	}
	return ExitUsage
}
