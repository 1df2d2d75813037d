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

// networkObjects returns, for each object, the arguments of create and of delete, and the text in
// the kernel's listing.
func networkObjects() [][3]string {
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
	k := &killRig{Rig: r, kills: map[string]int{}}
	var err error
	if k.watcher, err = steps.Listen(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.watcher.Close() })
	if k.wrap, err = k.watcher.Wrap(); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	live := func(kill int, work func() error) steps.Record {
		return k.runUntilStep(kill, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), rig.StartPatience)
			defer cancel()
			if err := k.Start(ctx); err != nil {
				return err
			}
			if err := work(); err != nil {
				return err
			}
			k.Stop()
			return nil
		})
	}
	work := func() error {
		for _, o := range networkObjects() {
			if _, err := k.Command(append([]string{"create"}, strings.Fields(o[0])...)...); err != nil {
				return err
			}
		}
		list := networkObjects()
		for i := range list {
			if _, err := k.Command(append([]string{"delete"}, strings.Fields(list[len(list)-1-i][1])...)...); err != nil {
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
		record := live(kill, work)
		k.wantConfigured(fmt.Sprintf("killed before step %d, %s", kill, record.Last))
	}
	t.Logf("%d steps of the start, %d in total; killed before %v", started, whole, k.kills)
}

// wantConfigured starts the daemon, and checks that the kernel has exactly the configured objects.
// It then deletes all of them.
func (k *killRig) wantConfigured(when string) {
	k.T.Helper()
	k.Restart()
	labtest.Eventually(k.T, rig.Patience, func(context.Context) error {
		status, kernel := k.Loxicmd("get status"), kernelText(k.Rig)
		for _, o := range networkObjects() {
			kind, key, _ := strings.Cut(o[1], " ")
			kind = strings.Replace(kind, "ip", "ipv4address", 1)
			wanted := false
			for line := range strings.Lines(status) {
				cells := strings.Split(line, "|")
				wanted = wanted || len(cells) > 3 && strings.TrimSpace(cells[1]) == kind && strings.TrimSpace(cells[2]) == key
			}
			if there := strings.Contains(kernel, o[2]); there != wanted {
				return fmt.Errorf("%s: %s %s is in the kernel: %v, want %v\n%s%s", when, kind, key, there, wanted, status, kernel)
			}
		}
		return nil
	})
	for i := range networkObjects() {
		o := networkObjects()[len(networkObjects())-1-i]
		_, _ = k.Command(append([]string{"delete"}, strings.Fields(o[1])...)...) // fails for those that do not exist
	}
	kernel := kernelText(k.Rig)
	for _, o := range networkObjects() {
		if strings.Contains(kernel, o[2]) {
			k.T.Errorf("%s: the kernel has %s after it was deleted", when, o[1])
		}
	}
	k.Stop()
}
