package network_test

import (
	"path/filepath"
	"strings"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// TestSavedInterfaces checks that the configuration of interfaces can be saved, removed and applied
// again from the existing loxilb's folders, and that the configuration of others is not touched.
func TestSavedInterfaces(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	dir := t.TempDir()
	objects := [][3]string{
		{"vlan 100", "vlan 100", "vlan100"},
		{"vlanmember 100 ep2", "vlanmember 100 ep2", "master vlan100"},
		{"vxlan 78 ep1", "vxlan 78", "vxlan78"},
		{"vxlanpeer 78 31.31.31.9", "vxlanpeer 78 31.31.31.9", "dst 31.31.31.9"},
		{"ip 10.9.0.1/24 ep3", "ip 10.9.0.1/24 ep3", "inet 10.9.0.1/24"},
		{"ip fd09::1/64 vlan100", "ip fd09::1/64 vlan100", "inet6 fd09::1/64"},
		{"route 10.8.0.0/16 31.31.31.1", "route 10.8.0.0/16", "10.8.0.0/16 via 31.31.31.1"},
		{"neighbor 31.31.31.77 ep1 --macAddress=02:00:00:00:00:77", "neighbor 31.31.31.77 ep1", "31.31.31.77 dev ep1 lladdr 02:00:00:00:00:77"},
	}
	kernel := func() (text string) {
		for _, what := range []string{"ip -o link", "ip -o address", "ip route", "ip neigh", "bridge fdb"} {
			text += labtest.Run(t, r.LB, strings.Fields(what)...)
		}
		return text
	}
	for _, o := range objects {
		r.Loxicmd("create %s", o[0])
	}
	labtest.Run(t, r.LB, "ip", "route", "add", "10.7.0.0/16", "via", "31.31.31.1") // not by loxilb
	wanted := r.Loxicmd("save -f -")
	r.Loxicmd("save --ip -c %s", dir)
	path := filepath.Join(dir, "ipconfig")
	if out := r.Loxicmd("apply --ip %s", path); out != "unchanged\n" {
		t.Errorf("all is there, and it says %s", out)
	}
	for i := range objects {
		r.Loxicmd("delete %s", objects[len(objects)-1-i][1])
	}
	labtest.Run(t, r.LB, "ip", "route", "del", "10.7.0.0/16", "via", "31.31.31.1")
	r.Loxicmd("apply --per-intf ep1 --ipv4route -c %s", path)
	if out := r.Loxicmd("get route"); !strings.Contains(out, "10.8.0.0/16") || !strings.Contains(out, "10.7.0.0/16") || strings.Contains(kernel(), "vxlan78") {
		t.Errorf("the saved routes of ep1 are not as in the file:\n%s", out)
	}
	r.Loxicmd("apply --ip %s", path)
	text := kernel()
	for _, o := range objects {
		if !strings.Contains(text, o[2]) {
			t.Errorf("%s is missing:\n%s", o[0], text)
		}
	}
	now := r.Loxicmd("save -f -")
	for document := range strings.SplitSeq(wanted, "---\n") {
		if !strings.Contains(now, document) {
			t.Errorf("%s is not wanted any more:\n%s", document, now)
		}
	}
}
