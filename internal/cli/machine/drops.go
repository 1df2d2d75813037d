package machine

import (
	"strconv"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

// getDrops returns the command that explains drop reasons. It omits reasons without packets, unless
// they are given.
func getDrops(o *session.Options) *cobra.Command {
	isEach := false
	kind := session.Kind[v1.DropList, v1.Drop]{
		Word: "drops", Key: "dropAttr", Called: "drop reason", Hint: ": loxicmd get drops --all shows all",
		Fetch: (*v1.Client).GetDrops,
		Items: func(l *v1.DropList) *[]v1.Drop { return &l.DropAttr },
		Name:  func(d *v1.Drop) string { return d.Reason },
		Draw:  func(l *v1.DropList) *session.Table { return dropTable(l.DropAttr, isEach, o.Output == "wide") },
	}
	cmd := &cobra.Command{
		Use:     "drops [REASON...]",
		Aliases: []string{"drop"},
		Short:   "Show why packets were dropped, and remedies; -o wide shows usual causes",
		Example: "  loxicmd get drops\n  loxicmd get drops no-connection -o wide",
	}
	cmd.Flags().BoolVar(&isEach, "all", false, "show also reasons without packets")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		isEach = isEach || len(args) > 0
		return nil
	}
	return kind.GetWith(o, cmd)
}

func dropTable(list []v1.Drop, isEach, isWide bool) *session.Table {
	t := session.NewTable("Reason", "Packets", "Meaning", "Cause", "Remedy")
	if !isWide {
		t.LeaveOut("Cause")
	}
	const width = 44 // at which cells of a narrow table wrap
	for i := range list {
		d := &list[i]
		if d.Packets == 0 && !isEach {
			continue
		}
		meaning, remedy := []string{d.Meaning}, []string{d.Remedy}
		if !isWide {
			meaning, remedy = session.Wrap(d.Meaning, width), session.Wrap(d.Remedy, width)
		}
		t.AddLines([]string{d.Reason}, []string{strconv.FormatUint(d.Packets, 10)}, meaning, []string{d.Cause}, remedy)
	}
	return t
}
