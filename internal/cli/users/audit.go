package users

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

func getAudit(o *session.Options) *cobra.Command {
	params := &v1.GetAuditParams{}
	cmd := &cobra.Command{
		Use:     "audit",
		Short:   "Show the audit log: changes and refused requests",
		Example: "  loxicmd get audit --limit=20",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.Client()
			if err != nil {
				return err
			}
			body, err := o.Answer(client.GetAudit(cmd.Context(), params))
			if err != nil {
				return err
			}
			if o.IsRaw() {
				return o.PrintRaw(body)
			}
			var list v1.AuditList
			if err := session.Decode(body, &list); err != nil {
				return err
			}
			t := session.NewTable("Time", "Who", "Role", "From", "What", "Objects", "Result", "Revision", "Error")
			for _, e := range list.AuditAttr {
				revision := "-"
				if e.Revision != 0 {
					revision = strconv.FormatUint(e.Revision, 10)
				}
				t.Add(e.Time.Local().Format(time.DateTime), session.OneLine(e.Who), cmp.Or(e.Role, "-"), e.From, session.OneLine(e.Method+" "+e.Path),
					session.OneLine(cmp.Or(strings.Join(e.Objects, ", "), "-")), strconv.Itoa(e.Result), revision, session.OneLine(cmp.Or(e.Error, "-")))
			}
			return o.Print(t.String())
		},
	}
	cmd.Flags().IntVar(&params.Limit, "limit", 100, "show the newest N, 1 to 10000")
	return cmd
}
