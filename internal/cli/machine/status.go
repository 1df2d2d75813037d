package machine

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

func getStatus(o *session.Options) *cobra.Command {
	params := &v1.GetStatusesParams{}
	kind := session.Kind[v1.StatusList, v1.Status]{
		Word: "status", Key: "statusAttr", Served: true, ByServer: true, Named: []string{"key"}, Called: "object",
		Quiet: func() bool { return params.Failed },
		Hint:  ": write its name, or its key as loxicmd get status shows it",
		Ask: func(c *v1.Client, ctx context.Context, edit ...v1.RequestEditorFn) (*http.Response, error) {
			return c.GetStatuses(ctx, params, edit...)
		},
		Items: func(l *v1.StatusList) *[]v1.Status { return &l.StatusAttr },
		Name:  func(s *v1.Status) string { return s.Kind + " " + s.Key },
		Also:  func(s *v1.Status) []string { return []string{s.Key} },
		Draw:  func(l *v1.StatusList) *session.Table { return statusTable(l.StatusAttr) },
	}
	cmd := &cobra.Command{
		Use:     "status [NAME|KEY...]",
		Aliases: []string{"statuses"},
		Short:   "show what works and what does not: what the data path has of each object, and why not what is wanted",
		Example: "  loxicmd get status --failed\n  loxicmd get status 20.20.20.1:2020/tcp\n  loxicmd get status -l state=failed --sort-by=-attempts --limit=20",
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&params.Failed, "failed", false, "only what failed")
	fs.StringVar(&params.Kind, "kind", "", "only objects of this kind: service, interface, network, endpoint, vip, setting or pressure")
	return kind.Get(o, cmd)
}

func statusTable(list []v1.Status) *session.Table {
	t := session.NewTable("Kind", "Key", "State", "Desired", "Applied", "Since", "Tries", "Error")
	for i := range list {
		s := &list[i]
		t.Add(s.Kind, s.Key, s.State, session.Version(s.Desired), session.Version(s.Applied), session.Clock(s.Since), session.Tries(s), s.Error)
	}
	return t
}
