// Package diagnose has the diagnostic commands: ready, verify, doctor, support-bundle, explain,
// trace, and stats, rate and top for counters.
package diagnose

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

// Commands returns the commands of this package, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{session.Root: {
		readyCommand(o), verifyCommand(o), doctorCommand(o), bundleCommand(o), explainCommand(o), traceCommand(o),
		statsCommand(o), rateCommand(o), topCommand(o),
	}}
}

// Exit codes of verify.
const (
	exitDiffers = 1
	exitUnknown = 2
)

// patience is how long the daemon may take to compare: 10,000 services take seconds.
const patience = 5 * time.Minute

func verifyCommand(o *session.Options) *cobra.Command {
	var whole, repair, all bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the kernel's BPF maps with the configuration, row by row",
		Long: "Compares each BPF map that the daemon writes with the configured services, firewall rules and\n" +
			"policers, and checks that connection entries are consistent. It may run at any time: only\n" +
			"differences seen twice count.\n\n" +
			"Exits with 0 when everything matches, 1 when something differs, 2 when the comparison failed.",
		Example: "  loxicmd verify\n  loxicmd verify --all-connections\n  loxicmd verify --repair",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, body, err := askVerify(cmd, o, whole, repair)
			if err != nil {
				return session.Exit(exitUnknown, err)
			}
			if o.IsRaw() {
				err = o.PrintRaw(body)
			} else {
				err = o.Print(verifiedText(report, all))
			}
			if err != nil {
				return err
			}
			switch report.Verdict {
			case "same":
				return nil
			case "differs":
				return session.Exit(exitDiffers, nil)
			}
			return session.Exit(exitUnknown, nil)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&repair, "repair", false, "apply differing rows again")
	fs.BoolVar(&whole, "all-connections", false, "check every connection instead of a sample")
	fs.BoolVar(&all, "tables", false, "list each compared table with its number of rows")
	return cmd
}

func askVerify(cmd *cobra.Command, o *session.Options, whole, repair bool) (report v1.Verified, body []byte, err error) {
	o.ExtendTimeout(patience)
	client, err := o.Client()
	if err != nil {
		return report, nil, err
	}
	if repair {
		body, err = o.Answer(client.Repair(cmd.Context(), &v1.RepairParams{Whole: whole}))
	} else {
		body, err = o.Answer(client.GetVerify(cmd.Context(), &v1.GetVerifyParams{Whole: whole}))
	}
	if err != nil {
		return report, nil, err
	}
	return report, body, session.Decode(body, &report)
}

func verifiedText(r v1.Verified, all bool) string {
	var b strings.Builder
	if all {
		t := session.NewTable("Table", "Rows", "Differences")
		for _, one := range r.Tables {
			t.Add(one.Name, fmt.Sprint(one.Rows), fmt.Sprint(one.Differences))
		}
		b.WriteString(t.String())
	}
	rows, unsettled, listed := 0, 0, map[string]int{}
	for _, d := range r.Differences {
		fmt.Fprintf(&b, "%s: %s %s\n", d.Table, d.Row, d.What)
		if d.Repaired {
			b.WriteString("  repaired\n")
		} else {
			fmt.Fprintf(&b, "  fix: %s\n", d.Mend)
			listed[d.Table]++
		}
	}
	for _, t := range r.Tables {
		rows += t.Rows
		unsettled += t.Unsettled
		if more := t.Differences - listed[t.Name]; more > 0 {
			fmt.Fprintf(&b, "%s: %d more rows differ\n", t.Name, more)
		}
		if t.Error != "" {
			fmt.Fprintf(&b, "%s: comparison failed: %s\n", t.Name, t.Error)
		}
	}
	fmt.Fprintf(&b, "%s: %d rows of %d tables compared in %.1f s", verdictText(r.Verdict), rows, len(r.Tables), r.Seconds)
	if unsettled > 0 {
		fmt.Fprintf(&b, "; %d changed during each comparison", unsettled)
	}
	b.WriteString("\n")
	return b.String()
}

func verdictText(v string) string {
	switch v {
	case "same":
		return "The kernel matches the configuration"
	case "differs":
		return "The kernel differs from the configuration"
	}
	return "Could not compare the kernel with the configuration"
}
