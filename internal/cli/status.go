package cli

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
)

func getStatus(o *options) *cobra.Command {
	params := &v1.GetStatusesParams{}
	cmd := &cobra.Command{
		Use:     "status [NAME|KEY]",
		Aliases: []string{"statuses"},
		Short:   "show what works and what does not: what the data path has of each object, and why not what is wanted",
		Example: "  loxicmd get status --failed\n  loxicmd get status 20.20.20.1:2020/tcp",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				params.Name = args[0]
			}
			client, err := o.client()
			if err != nil {
				return err
			}
			body, err := o.answer(client.GetStatuses(cmd.Context(), params))
			if err != nil {
				return err
			}
			if o.output == "json" || o.output == "yaml" {
				return o.printRaw(body)
			}
			var list v1.StatusList
			if err := decode(body, &list); err != nil {
				return err
			}
			if params.Name != "" && !params.Failed && len(list.StatusAttr) == 0 {
				return refused("there is no object %q: write its name, or its key as loxicmd get status shows it", params.Name)
			}
			return o.print(statusTable(list.StatusAttr).String())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&params.Failed, "failed", false, "only what failed")
	fs.StringVar(&params.Kind, "kind", "", "only objects of this kind: service, interface, network, endpoint, vip, setting or pressure")
	return cmd
}

func statusTable(list []v1.Status) *table {
	t := newTable("Kind", "Key", "State", "Desired", "Applied", "Since", "Tries", "Error")
	for i := range list {
		s := &list[i]
		t.add(s.Kind, s.Key, s.State, version(s.Desired), version(s.Applied), clock(s.Since), tries(s), s.Error)
	}
	return t
}

// version is - for none.
func version(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

func tries(s *v1.Status) string {
	if s.Attempts == 0 {
		return "-"
	}
	return strconv.Itoa(s.Attempts)
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(time.RFC3339)
}

// statusCell says in a cell what the data path has of a service.
func statusCell(s *v1.Status) string {
	switch {
	case s == nil:
		return "-"
	case s.Error != "":
		return s.State + ": " + s.Error
	}
	return s.State
}

// raw is a value as JSON has it, for what prints any of them.
func raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // types of the API can be written
	}
	return b
}
