package machine

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

func getStatus(o *session.Options) *cobra.Command {
	params := &v1.GetStatusesParams{}
	kind := session.Kind[v1.StatusList, v1.Status]{
		Word: "status", Key: "statusAttr", Served: true, ByServer: true, Named: []string{"key"}, Called: "object",
		Quiet: func() bool { return params.Failed },
		Hint:  ": give its name, or its key as shown by loxicmd get status",
		Fetch: func(c *v1.Client, ctx context.Context, edit ...v1.RequestEditorFn) (*http.Response, error) {
			return c.GetStatuses(ctx, params, edit...)
		},
		Words:      map[string][]string{"state": {"applied", "pending", "failed"}},
		Items:      func(l *v1.StatusList) *[]v1.Status { return &l.StatusAttr },
		Name:       func(s *v1.Status) string { return s.Kind + " " + s.Key },
		OtherNames: func(s *v1.Status) []string { return []string{s.Key} },
		Draw:       func(l *v1.StatusList) *session.Table { return statusTable(l.StatusAttr, o.Output == "wide") },
	}
	cmd := &cobra.Command{
		Use:     "status [NAME|KEY...]",
		Aliases: []string{"statuses"},
		Short:   "Show whether each object is applied to the data path, and why not",
		RunE:    func(*cobra.Command, []string) error { return checkStatusKind(params.Kind) },
		Example: "  loxicmd get status --failed\n  loxicmd get status 20.20.20.1:2020/tcp\n  loxicmd get status -l state=failed --sort-by=-attempts --limit=20",
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&params.Failed, "failed", false, "show only failed objects")
	fs.StringVar(&params.Kind, "kind", "", "show only objects of this kind, such as service, endpoint, interface, network, vip, firewall or route")
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(statusKinds(), cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
	return kind.GetWith(o, cmd)
}

// statusKinds returns the kinds of objects that have a status: of users first, then of the daemon.
func statusKinds() (list []string) {
	for _, k := range kinds.All() {
		list = append(list, k.About().Name)
	}
	return append(list, "interface", "network", "vip", "setting", "pressure", "programs", "bgpsession")
}

func checkStatusKind(word string) error {
	if word == "" || slices.Contains(statusKinds(), word) {
		return nil
	}
	return lb.NewFieldError("--kind", word, "is not a kind of object"+lb.DidYouMean(word, statusKinds()), strings.Join(statusKinds(), ", "))
}

// The widths at which the cells of a narrow table wrap.
const (
	keyWidth   = 44
	errorWidth = 44
)

func statusTable(list []v1.Status, wide bool) *session.Table {
	t := session.NewTable("Kind", "Key", "State", "Desired", "Applied", "Since", "Tries", "Error")
	t.LeaveOut("Tries", "-")
	t.LeaveOut("Error", "")
	if !wide {
		t.LeaveOut("Desired")
		t.LeaveOut("Applied")
	}
	for i := range list {
		s := &list[i]
		key, problem := []string{s.Key}, []string{s.Error}
		if !wide {
			key, problem = session.Wrap(s.Key, keyWidth), session.Wrap(s.Error, errorWidth)
		}
		t.AddLines([]string{s.Kind}, key, []string{s.State}, []string{session.Version(s.Desired)}, []string{session.Version(s.Applied)},
			[]string{session.ShortTime(s.Since)}, []string{session.Tries(s)}, problem)
	}
	return t
}
