package network_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// awaitServer waits until the server with the name who answers at an address.
func awaitServer(r *rig.Rig, address, who string) {
	r.T.Helper()
	labtest.Eventually(r.T, rig.Patience, func(context.Context) error {
		got, err := r.Ask(address)
		if err == nil && !strings.HasPrefix(got, who+" ") {
			err = fmt.Errorf("%s answers, want %s", got, who)
		}
		return err
	})
}

// TestBalanceOverVXLAN checks that endpoints behind a tunnel that loxicmd has created are
// reachable, in modes that keep and that replace the client's address, also if the tunnel is in the
// bridge of a VLAN. They are reachable again after someone else has deleted the tunnel, or the
// daemon was killed.
func TestBalanceOverVXLAN(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	far := r.Endpoints[0]
	for _, line := range []string{
		"ip link add vxlan78 type vxlan id 78 dstport 4789 local 31.31.31.1 remote 31.31.31.254 dev eth0",
		"ip link set vxlan78 up",
		"ip address add 10.78.0.1/24 dev vxlan78",
		"ip address add 2001:db8:78::1/64 dev vxlan78 nodad",
		"ip route add 100.100.100.0/24 via 10.78.0.254",
		"ip -6 route add 2001:db8:100::/64 via 2001:db8:78::fe",
	} {
		rig.MustRun(t, far, strings.Fields(line)...)
	}
	for _, line := range []string{
		"create vxlan 78 ep1", "create vxlanpeer 78 31.31.31.1", "create ip 10.78.0.254/24 vxlan78", "create ip 2001:db8:78::fe/64 vxlan78",
		"create lb 20.20.20.1 --tcp=80:5001 --endpoints=10.78.0.1:1",
		"create lb 20.20.20.2 --tcp=80:5001 --endpoints=10.78.0.1:1 --mode=onearm",
		"create lb 2001:db8:20::1 --tcp=80:5001 --endpoints=[2001:db8:78::1]:1",
	} {
		r.Loxicmd("%s", line)
	}
	balanced := func() {
		t.Helper()
		for _, vip := range []string{"20.20.20.1:80", "20.20.20.2:80", "[2001:db8:20::1]:80"} {
			awaitServer(r, vip, "ep1")
		}
	}
	balanced()
	if out := r.Loxicmd("get vxlan"); !strings.Contains(out, "| vxlan78     |       78 | ep1                | 31.31.31.1 |") {
		t.Errorf("get vxlan:\n%s", out)
	}
	rig.MustRun(t, r.LB, "ip", "link", "del", "vxlan78")
	balanced()
	r.Kill()
	rig.MustRun(t, r.LB, "ip", "link", "del", "vxlan78")
	r.Restart()
	balanced()

	// The same in a bridge, which then has the address.
	for _, line := range []string{
		"create vlan 100", "delete ip 10.78.0.254/24 vxlan78", "delete ip 2001:db8:78::fe/64 vxlan78", "create vlanmember 100 vxlan78",
		"create ip 10.78.0.254/24 vlan100", "create ipv4 2001:db8:78::fe/64 vlan100",
	} {
		r.Loxicmd("%s", line)
	}
	balanced()
	if out := r.Loxicmd("get vlan -o wide"); !strings.Contains(out, "| vlan100     |     100 | Device: vxlan78 | In/Out byte : ") {
		t.Errorf("get vlan:\n%s", out)
	}
	if out := r.Loxicmd("get fdb"); !strings.Contains(out, "| vxlan78 ") {
		t.Errorf("get fdb:\n%s", out)
	}
	r.Loxicmd("delete vlan 100")
	r.Loxicmd("delete vxlan 78")
	for _, name := range []string{"vlan100", "vxlan78"} {
		eventuallyPrints(r, false, name, "ip", "link")
	}
	for _, kind := range []string{"vlan", "vlanmember", "vxlan", "vxlanpeer", "ipv4address"} {
		if out := r.Loxicmd("get status --kind=%s", kind); strings.Contains(out, "100") || strings.Contains(out, "78") {
			t.Errorf("objects of deleted interfaces are still listed:\n%s", out)
		}
	}
}

// TestBalanceOverVLAN checks that interfaces of endpoints can become members of a VLAN that loxicmd
// creates, with tags (if the kernel supports them) and without.
func TestBalanceOverVLAN(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	for _, line := range []string{
		"create vlan 100", "delete ip 32.32.32.254/24 ep2", "create vlanmember 100 ep2", "create ip 32.32.32.254/24 vlan100",
		"create lb 20.20.20.1 --tcp=80:5001 --endpoints=32.32.32.1:1",
	} {
		r.Loxicmd("%s", line)
	}
	awaitServer(r, "20.20.20.1:80", "ep2")
	if out := r.Loxicmd("get port"); !strings.Contains(out, "IsPVID: true") || !strings.Contains(out, "VID : 100") {
		t.Errorf("get port:\n%s", out)
	}
	eth0, err := r.Endpoints[1].Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	mac := eth0.Attrs().HardwareAddr.String()
	r.Loxicmd("create fdb %s ep2", mac)
	eventuallyPrints(r, true, mac+" dev ep2 master vlan100 static", "bridge", "fdb")
	rig.MustRun(t, r.LB, "bridge", "fdb", "del", mac, "dev", "ep2", "master")
	eventuallyPrints(r, true, mac+" dev ep2 master vlan100 static", "bridge", "fdb")
	awaitServer(r, "20.20.20.1:80", "ep2")
	rig.MustRun(t, r.LB, "ip", "link", "set", "ep2", "nomaster")
	eventuallyPrints(r, true, "master vlan100", "ip", "link", "show", "ep2")
	eventuallyPrints(r, true, mac+" dev ep2 master vlan100 static", "bridge", "fdb")
	awaitServer(r, "20.20.20.1:80", "ep2")
	r.Loxicmd("delete fdb %s ep2", mac)
	eventuallyPrints(r, false, "static", "bridge", "fdb", "show", "brport", "ep2")

	for line, want := range map[string]string{
		"create vlan 4095":            "is not the number of a VLAN",
		"create vlanmember 200 ep3":   "there is no interface vlan200",
		"create vlanmember 100 eth9":  "there is no interface eth9",
		"create vxlan 5 eth9":         "there is no interface eth9",
		"create vxlanpeer 5 10.0.0.1": "there is no interface vxlan5",
	} {
		if s := runRefused(r, "%s", line); !strings.Contains(s, want) {
			t.Errorf("%s is refused by %q, want %q", line, s, want)
		}
	}
	for _, gone := range []string{"vlan 200", "vlanmember 100 ep3", "vxlan 5", "vxlanpeer 5 10.0.0.1", "fdb 02:00:00:00:00:01 ep3"} {
		r.Loxicmd("delete %s", gone)
	}
	taggedMember(r)
	r.Loxicmd("delete vlanmember 100 ep2")
	eventuallyPrints(r, false, "master", "ip", "link", "show", "ep2")
}

// taggedMember adds the third endpoint to the VLAN with tags.
func taggedMember(r *rig.Rig) {
	r.T.Helper()
	far := r.Endpoints[2]
	out, err := r.Command("create", "vlanmember", "100", "ep3", "--tagged")
	if err != nil {
		if !strings.Contains(err.Error(), "for which it needs the module 8021q: operation not supported") {
			r.T.Fatalf("create vlanmember --tagged: %s %v", out, err)
		}
		if out := r.Loxicmd("get status --kind=vlanmember"); strings.Contains(out, "ep3") {
			r.T.Errorf("an object that the kernel has refused is listed:\n%s", out)
		}
		r.T.Log("the kernel has no 8021q:", err)
		return
	}
	for _, line := range []string{
		"ip link add link eth0 name eth0.100 type vlan id 100", "ip address add 32.32.32.3/24 dev eth0.100",
		"ip link set eth0.100 up", "ip route replace default via 32.32.32.254",
	} {
		rig.MustRun(r.T, far, strings.Fields(line)...)
	}
	r.Loxicmd("create lb 20.20.20.3 --tcp=80:5001 --endpoints=32.32.32.3:1")
	awaitServer(r, "20.20.20.3:80", "ep3")
	r.Loxicmd("delete vlanmember 100 ep3 --tagged")
	eventuallyPrints(r, false, "ep3.100", "ip", "link")
}
