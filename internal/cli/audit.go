package cli

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
)

func getAudit(o *options) *cobra.Command {
	params := &v1.GetAuditParams{}
	cmd := &cobra.Command{
		Use:     "audit",
		Short:   "show who has changed what, and who was refused",
		Example: "  loxicmd get audit --limit=20",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.client()
			if err != nil {
				return err
			}
			body, err := o.answer(client.GetAudit(cmd.Context(), params))
			if err != nil {
				return err
			}
			if o.output == "json" || o.output == "yaml" {
				return o.printRaw(body)
			}
			var list v1.AuditList
			if err := decode(body, &list); err != nil {
				return err
			}
			t := newTable("Time", "Who", "Role", "From", "What", "Objects", "Result", "Revision", "Error")
			for _, e := range list.AuditAttr {
				revision := "-"
				if e.Revision != 0 {
					revision = strconv.FormatUint(e.Revision, 10)
				}
				t.add(e.Time.Local().Format(time.DateTime), oneLine(e.Who), cmp.Or(e.Role, "-"), e.From, oneLine(e.Method+" "+e.Path),
					oneLine(cmp.Or(strings.Join(e.Objects, ", "), "-")), strconv.Itoa(e.Result), revision, oneLine(cmp.Or(e.Error, "-")))
			}
			return o.print(t.String())
		},
	}
	cmd.Flags().IntVar(&params.Limit, "limit", 100, "the newest so many, 1 to 10000")
	return cmd
}
