package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
	"loxilb/test/steps"
)

// killedObjects returns commands, and the text by which the kernel shows each object.
func killedObjects() [][3]string {
	return [][3]string{
		{"vlan 100", "vlan 100", "vlan100:"},
		{"vlanmember 100 ep2", "vlanmember 100 ep2", "ep2:.*master vlan100"},
		{"vxlan 78 ep1", "vxlan 78", "vxlan78:"},
		{"vxlanpeer 78 31.31.31.9", "vxlanpeer 78 31.31.31.9", "00:00:00:00:00:00 dev vxlan78 dst 31.31.31.9"},
		{"ip 10.9.0.1/24 ep3", "ip 10.9.0.1/24 ep3", "inet 10.9.0.1/24"},
		{"route 10.8.0.0/16 31.31.31.1", "route 10.8.0.0/16", "10.8.0.0/16 via 31.31.31.1"},
		{"neighbor 31.31.31.77 ep1 --macAddress=02:00:00:00:00:77", "neighbor 31.31.31.77 ep1", "31.31.31.77 lladdr 02:00:00:00:00:77"},
		{"fdb 02:00:00:00:00:78 ep2", "fdb 02:00:00:00:00:78 ep2", "02:00:00:00:00:78 dev ep2 master vlan100 static"},
	}
}

// kernelText returns the network objects of the balancer's kernel, without the part of a link
// between its name and its master.
func kernelText(r *rig.Rig) string {
	r.T.Helper()
	text := ""
	for line := range strings.Lines(labtest.Run(r.T, r.LB, "ip", "-o", "link")) {
		fields := strings.Fields(line)
		name, _, _ := strings.Cut(fields[1], "@")
		_, master, _ := strings.Cut(line, " master ")
		master, _, _ = strings.Cut(master, " ")
		text += strings.TrimSuffix(name, ":") + ":.*master " + master + "\n"
	}
	for _, what := range []string{"ip -o address", "ip route", "ip neigh show dev ep1 nud permanent", "bridge fdb"} {
		text += labtest.Run(r.T, r.LB, strings.Fields(what)...)
	}
	return text
}

// TestKilledObjects kills the daemon before steps that create and delete objects of the kernel's
// network. Afterwards the kernel has exactly the configured objects, and all of them can be
// deleted.
func TestKilledObjects(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	v := &victim{Rig: r, kills: map[string]int{}}
	var err error
	if v.watcher, err = steps.Listen(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.watcher.Close() })
	if v.wrap, err = v.watcher.Wrap(); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	live := func(kill int, work func() error) steps.Life {
		return v.watched(kill, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), rig.StartPatience)
			defer cancel()
			if err := v.Start(ctx); err != nil {
				return err
			}
			if err := work(); err != nil {
				return err
			}
			v.Stop()
			return nil
		})
	}
	work := func() error {
		for _, o := range killedObjects() {
			if _, err := v.Command(append([]string{"create"}, strings.Fields(o[0])...)...); err != nil {
				return err
			}
		}
		list := killedObjects()
		for i := range list {
			if _, err := v.Command(append([]string{"delete"}, strings.Fields(list[len(list)-1-i][1])...)...); err != nil {
				return err
			}
		}
		return nil
	}
	started := live(0, func() error { return nil }).Steps
	whole := live(0, work).Steps
	kills := 6
	if rig.IsLong() {
		kills = 60
	}
	for i := range kills {
		kill := started - 2 + (whole-started)*i/kills
		life := live(kill, work)
		v.configured(fmt.Sprintf("killed before step %d, %s", kill, life.Last))
	}
	t.Logf("%d steps of the start, %d in all; killed before %v", started, whole, v.kills)
}

// configured starts the daemon, and checks that the kernel has the configured objects.
func (v *victim) configured(when string) {
	v.T.Helper()
	v.Restart()
	labtest.Eventually(v.T, rig.Patience, func(context.Context) error {
		status, kernel := v.Loxicmd("get status"), kernelText(v.Rig)
		for _, o := range killedObjects() {
			kind, key, _ := strings.Cut(o[1], " ")
			kind = strings.Replace(kind, "ip", "ipv4address", 1)
			wanted := false
			for line := range strings.Lines(status) {
				cells := strings.Split(line, "|")
				wanted = wanted || len(cells) > 3 && strings.TrimSpace(cells[1]) == kind && strings.TrimSpace(cells[2]) == key
			}
			if there := strings.Contains(kernel, o[2]); there != wanted {
				return fmt.Errorf("%s: %s %s is wanted: %v, and in the kernel: %v\n%s%s", when, kind, key, wanted, there, status, kernel)
			}
		}
		return nil
	})
	for i := range killedObjects() {
		o := killedObjects()[len(killedObjects())-1-i]
		_, _ = v.Command(append([]string{"delete"}, strings.Fields(o[1])...)...) // fails for those that do not exist
	}
	kernel := kernelText(v.Rig)
	for _, o := range killedObjects() {
		if strings.Contains(kernel, o[2]) {
			v.T.Errorf("%s: %s is there after it was deleted", when, o[1])
		}
	}
	v.Stop()
}
