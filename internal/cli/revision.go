package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
)

func confirmCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "confirm [REVISION]",
		Short:   "have what apply --confirm has changed stay",
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
			client, err := o.client()
			if err != nil {
				return err
			}
			answer, err := o.answer(client.ConfirmApply(cmd.Context(), body))
			if err != nil {
				return err
			}
			return o.done(answer)
		},
	}
}

func rollbackCommand(o *options) *cobra.Command {
	var body v1.RollbackRequest
	cmd := &cobra.Command{
		Use:   "rollback [REVISION]",
		Short: "make all objects what they were at a revision",
		Long: "loxicmd get revisions lists what one can go back to; without a REVISION it is the one before the last. Going back is a new\n" +
			"revision, so it can be gone back on.",
		Example: "  loxicmd get revisions\n  loxicmd rollback 41 --dry-run\n  loxicmd rollback 41",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := o.client()
			if err != nil {
				return err
			}
			var number uint64
			if len(args) == 1 {
				number, err = revisionOf(args[0])
			} else {
				var list v1.RevisionList
				if list, err = o.revisions(cmd); err == nil && len(list.RevisionAttr) == 0 {
					err = refused("there is no revision to go back on")
				}
				if err == nil {
					number = list.RevisionAttr[0].Revision - 1
				}
			}
			if err != nil {
				return err
			}
			body.Revision = &number
			answer, err := o.answer(client.RollBack(cmd.Context(), body))
			if err != nil {
				return err
			}
			return o.printResult(answer, body.DryRun)
		},
	}
	cmd.Flags().BoolVar(&body.DryRun, "dry-run", false, "only say what would change, as plan does")
	cmd.Flags().BoolVar(&body.Force, "force", false, "also if firewall rules cut connections of the machine itself, as your ssh session")
	cmd.Flags().BoolVar(&body.Managed, "managed", false, "services that a controller manages too")
	return cmd
}

func revisionOf(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no revision: a number, as loxicmd get revisions lists them", text)
	}
	return n, nil
}

func (o *options) revisions(cmd *cobra.Command) (list v1.RevisionList, err error) {
	client, err := o.client()
	if err != nil {
		return list, err
	}
	answer, err := o.answer(client.GetRevisions(cmd.Context()))
	if err != nil {
		return list, err
	}
	return list, decode(answer, &list)
}

func getRevisions(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "revisions",
		Aliases: []string{"revision", "rev"},
		Short:   "show the last 50 changes: who made them, from where, and when",
		Example: "  loxicmd get revisions",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.client()
			if err != nil {
				return err
			}
			answer, err := o.answer(client.GetRevisions(cmd.Context()))
			if err != nil {
				return err
			}
			if o.output == "json" || o.output == "yaml" {
				return o.printRaw(answer)
			}
			var list v1.RevisionList
			if err := decode(answer, &list); err != nil {
				return err
			}
			t := newTable("Revision", "Time", "Who", "From", "Added", "Changed", "Removed", "Doing", "Confirm")
			for _, r := range list.RevisionAttr {
				confirm := ""
				if r.Confirm != nil {
					confirm = "until " + r.Confirm.Local().Format(time.TimeOnly)
				}
				t.add(strconv.FormatUint(r.Revision, 10), r.Time.Local().Format(time.DateTime), r.Who, r.From,
					strconv.Itoa(r.Created), strconv.Itoa(r.Changed), strconv.Itoa(r.Deleted), r.Doing, confirm)
			}
			return o.print(t.String())
		},
	}
}
