package files

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

func confirmCommand(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "confirm [REVISION]",
		Short:   "Keep the changes made by apply --confirm",
		Example: "  loxicmd apply -f all.yaml --confirm=60s && loxicmd confirm",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var body v1.ConfirmRequest
			if len(args) == 1 {
				n, err := revisionOf(args[0])
				if err != nil {
					return err
				}
				body.Revision = n
			}
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.ConfirmApply(ctx, body)
			})
		},
	}
}

func rollbackCommand(o *session.Options) *cobra.Command {
	var body v1.RollbackRequest
	cmd := &cobra.Command{
		Use:   "rollback [REVISION]",
		Short: "Restore all objects to a revision",
		Long: "Restores all objects to a revision listed by loxicmd get revisions; the default is the one\n" +
			"before the last. The rollback is itself a revision, so it can be rolled back.",
		Example: "  loxicmd get revisions\n  loxicmd rollback 41 --dry-run\n  loxicmd rollback 41",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := o.Client()
			if err != nil {
				return err
			}
			var number uint64
			if len(args) == 1 {
				number, err = revisionOf(args[0])
			} else {
				var list v1.RevisionList
				if list, err = revisions(o, cmd); err == nil && len(list.RevisionAttr) == 0 {
					err = session.Refused("there is no revision to roll back to")
				}
				if err == nil {
					number = list.RevisionAttr[0].Revision - 1
				}
			}
			if err != nil {
				return err
			}
			body.Revision = &number
			answer, err := o.Answer(client.RollBack(cmd.Context(), body))
			if err != nil {
				return err
			}
			return printResult(o, answer, body.DryRun)
		},
	}
	cmd.Flags().BoolVar(&body.DryRun, "dry-run", false, "show what would change, like plan, and change nothing")
	cmd.Flags().BoolVar(&body.Force, "force", false, "proceed even if firewall rules cut connections of the machine itself, such as your SSH session")
	cmd.Flags().BoolVar(&body.Managed, "managed", false, "include services managed by a controller")
	return cmd
}

func revisionOf(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a revision: give a number from loxicmd get revisions", text)
	}
	return n, nil
}

func revisions(o *session.Options, cmd *cobra.Command) (list v1.RevisionList, err error) {
	client, err := o.Client()
	if err != nil {
		return list, err
	}
	return session.DecodeAs[v1.RevisionList](o.Answer(client.GetRevisions(cmd.Context())))
}

func revisionsKind() session.Kind[v1.RevisionList, v1.Revision] {
	return session.Kind[v1.RevisionList, v1.Revision]{
		Word: "revisions", Aliases: []string{"revision", "rev"},
		GetHelp:      session.Help{Short: "Show the last 50 changes: who made them, from where, and when", Example: "  loxicmd get revisions"},
		DescribeHelp: session.Help{Short: "Show a revision in full", Example: "  loxicmd describe revisions"},
		Key:          "revisionAttr", Object: "", Fetch: (*v1.Client).GetRevisions,
		Items: func(l *v1.RevisionList) *[]v1.Revision { return &l.RevisionAttr },
		Name:  func(d *v1.Revision) string { return strconv.FormatUint(d.Revision, 10) },
		Draw: func(list *v1.RevisionList) *session.Table {
			t := session.NewTable("Revision", "Time", "Who", "From", "Added", "Changed", "Removed", "Change", "Confirm")
			for _, r := range list.RevisionAttr {
				confirm := ""
				if r.Confirm != nil {
					confirm = "until " + r.Confirm.Local().Format(time.TimeOnly)
				}
				t.Add(strconv.FormatUint(r.Revision, 10), r.Time.Local().Format(time.DateTime), r.Who, r.From,
					strconv.Itoa(r.Created), strconv.Itoa(r.Changed), strconv.Itoa(r.Deleted), r.Doing, confirm)
			}
			return t
		},
	}
}
