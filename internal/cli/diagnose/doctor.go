package diagnose

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/diagnose/doctor"
)

// exitWrong is doctor's exit code after a certain finding.
const exitWrong = 1

func doctorCommand(o *session.Options) *cobra.Command {
	var fix, yes bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the machine and its network for problems, and suggest fixes",
		Long: "Checks the kernel, its settings, interfaces, neighbours, routes, limits, memory and endpoints.\n" +
			"Endpoints are pinged, and up to 256 of those without a probe are also tested by a connection. Each finding\n" +
			"shows the problem, how certain it is, why it matters and the command that fixes it. Nothing is\n" +
			"changed without --fix, which asks before each step.\n\n" +
			"Without a daemon in this network namespace, loxicmd runs the checks that need none.\n\n" +
			"Exits with 0 when no finding is certain, 1 otherwise.",
		Example: "  loxicmd doctor\n  loxicmd doctor --fix\n  loxicmd doctor --fix --yes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if yes && !fix {
				return errors.New("--yes needs --fix")
			}
			return examine(cmd.Context(), o, fix, yes)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&fix, "fix", false, "fix findings where that is safe, asking before each")
	fs.BoolVarP(&yes, "yes", "y", false, "with --fix: do not ask")
	return cmd
}

// A diagnoser runs the checks of doctor: in the daemon, or in this process.
type diagnoser interface {
	check(context.Context) (v1.Diagnosis, error)
	fix(ctx context.Context, id string) ([]string, error)
}

func examine(ctx context.Context, o *session.Options, fix, yes bool) error {
	var source diagnoser = &remote{o}
	d, err := source.check(ctx)
	var failed *session.Failure
	if errors.As(err, &failed) && failed.Code == session.ExitUnreachable && !o.IsRemote() {
		fmt.Fprintln(o.Env.Stderr, "No daemon answers in this network namespace: services, endpoints and VIPs are not checked.")
		source = localRunner{}
		d, err = source.check(ctx)
	}
	if err != nil {
		return err
	}
	switch {
	case o.IsRaw():
		body, err := json.Marshal(d)
		if err == nil {
			err = o.PrintRaw(body)
		}
		if err != nil {
			return err
		}
	default:
		if err := o.Print(diagnosisText(d)); err != nil {
			return err
		}
	}
	if fix {
		if d, err = fixAll(ctx, o, source, d, yes); err != nil {
			return err
		}
	}
	for _, f := range d.Findings {
		if f.Sure == string(doctor.Certain) {
			return session.Exit(exitWrong, nil)
		}
	}
	return nil
}

// fixAll repairs findings that the user confirms, and returns the remaining ones.
func fixAll(ctx context.Context, o *session.Options, source diagnoser, d v1.Diagnosis, yes bool) (v1.Diagnosis, error) {
	answers := bufio.NewReader(o.Env.Stdin)
	for _, f := range d.Findings {
		if !f.Fixable {
			continue
		}
		if !yes {
			fmt.Fprintf(o.Env.Stderr, "%s\n  %s\nDo it? [y/N] ", f.What, f.Command)
			answer, _ := answers.ReadString('\n')
			if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
				fmt.Fprintln(o.Env.Stderr, "Not changed.")
				continue
			}
		}
		done, err := source.fix(ctx, f.Id)
		if err != nil {
			return d, err
		}
		if err := o.Print("Done: " + strings.Join(done, "; ") + "\n"); err != nil {
			return d, err
		}
	}
	return source.check(ctx)
}

// remote asks the daemon to run the checks.
type remote struct{ o *session.Options }

func (r *remote) check(ctx context.Context) (d v1.Diagnosis, err error) {
	client, err := r.o.Client()
	if err != nil {
		return d, err
	}
	return session.DecodeAs[v1.Diagnosis](r.o.Answer(client.GetDoctor(ctx)))
}

func (r *remote) fix(ctx context.Context, id string) ([]string, error) {
	client, err := r.o.Client()
	if err != nil {
		return nil, err
	}
	fixed, err := session.DecodeAs[v1.Fixed](r.o.Answer(client.FixFinding(ctx, &v1.FixFindingParams{Finding: id})))
	return fixed.Done, err
}

// localRunner runs the checks itself.
type localRunner struct{}

func (localRunner) check(context.Context) (v1.Diagnosis, error) {
	return doctor.ToAPI(doctor.Here(doctor.Facts{}).Examine()), nil
}

func (localRunner) fix(_ context.Context, id string) ([]string, error) {
	if os.Geteuid() != 0 {
		return nil, session.Refused("only root can apply fixes")
	}
	done, err := doctor.Here(doctor.Facts{}).Fix(id)
	if err != nil {
		return nil, session.Refused("%v", err)
	}
	return done, nil
}

func diagnosisText(d v1.Diagnosis) string {
	var b strings.Builder
	for _, f := range d.Findings {
		fmt.Fprintf(&b, "%-9s%s\n         why: %s\n", f.Sure, session.OneLine(f.What), f.Why)
		switch {
		case strings.HasPrefix(f.Command, "check "): // no repair is known
			fmt.Fprintf(&b, "         %s\n", f.Command)
		case f.Command != "":
			fmt.Fprintf(&b, "         fix: %s\n", f.Command)
		}
	}
	unknown := 0
	for _, c := range d.Checks {
		if c.Unknown != "" {
			unknown++
			fmt.Fprintf(&b, "%-9s%s could not be checked: %s\n", "unknown", c.Name, c.Unknown)
		}
	}
	findings := "findings"
	if len(d.Findings) == 1 {
		findings = "finding"
	}
	fmt.Fprintf(&b, "%d checks, %d %s", len(d.Checks), len(d.Findings), findings)
	if unknown > 0 {
		fmt.Fprintf(&b, ", %d inconclusive", unknown)
	}
	b.WriteString("\n")
	return b.String()
}
