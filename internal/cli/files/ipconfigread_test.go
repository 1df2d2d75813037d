package files

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "loxilb/api/v1"
)

func said(r *interfaceReader) (list []string) {
	for _, o := range r.Objects {
		list = append(list, fmt.Sprintf("%s %s %s", o.Kind, o.Metadata, o.Spec))
	}
	return list
}

// TestRoundTrip checks that saved configuration is read unchanged, without what the kernel or other
// daemons create by themselves.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	objects := []v1.Object{
		{Kind: "Vlan", Spec: json.RawMessage(`{"vid":100}`)},
		{Kind: "VlanMember", Metadata: json.RawMessage(`{"vid":100}`), Spec: json.RawMessage(`{"dev":"eth1","tagged":true}`)},
		{Kind: "VlanMember", Metadata: json.RawMessage(`{"vid":100}`), Spec: json.RawMessage(`{"dev":"eth2"}`)},
		{Kind: "Vxlan", Spec: json.RawMessage(`{"epIntf":"eth0","vxlanID":78}`)},
		{Kind: "VxlanPeer", Metadata: json.RawMessage(`{"vxlanID":78}`), Spec: json.RawMessage(`{"peerIP":"10.0.0.2"}`)},
		{Kind: "Neighbor", Spec: json.RawMessage(`{"dev":"eth0","ipAddress":"10.0.0.7","macAddress":"02:00:00:00:00:07"}`)},
		{Kind: "FDB", Spec: json.RawMessage(`{"dev":"eth2","macAddress":"02:00:00:00:00:08"}`)},
	}
	c, left, err := newInterfaceConfig([]v1.DeviceAddresses{
		{Dev: "lo", IpAddress: []string{"127.0.0.1/8", "20.20.20.1/32"}}, {Dev: "eth0", IpAddress: []string{"10.0.0.1/24", "fe80::1/64", "2001:db8::1/64"}},
	}, []v1.RouteEntry{
		{DestinationIPNet: "10.1.0.0/16", Gateway: "10.0.0.254", Dev: "eth0", Protocol: 4}, {DestinationIPNet: "0.0.0.0/0", Gateway: "10.0.0.254", Dev: "eth0", Protocol: 3},
		{DestinationIPNet: "2001:db8:1::/48", Gateway: "2001:db8::2", Dev: "eth0", Protocol: 3},
		{
			DestinationIPNet: "10.2.0.0/16", Gateway: "10.0.0.254", Dev: "eth0", Protocol: 186,
		}, {DestinationIPNet: "10.3.0.0/16", Gateway: "10.0.0.254", Dev: "eth0", Protocol: 4, Metric: 7},
		{DestinationIPNet: "10.0.0.0/24", Dev: "eth0", Protocol: 2},
	}, objects)
	if err != nil {
		t.Fatal(err)
	}
	r := &interfaceReader{}
	for _, dev := range slices.Sorted(maps.Keys(c)) {
		for _, name := range interfaceFiles() {
			r.Read(dev+"/"+name, strings.Join(c[dev][name], "\n"))
		}
	}
	r.Finish()
	if diff := cmp.Diff(interfaceLeftOut{"have a metric: routes of loxilb have the default one": 1}, left); diff != "" {
		t.Errorf("the settings left out differ (-want +got):\n%s", diff)
	}
	var want []string
	for _, o := range objects {
		want = append(want, fmt.Sprintf("%s %s %s", o.Kind, o.Metadata, o.Spec))
	}
	for _, spec := range []string{"10.0.0.1/24", "2001:db8::1/64"} {
		want = append(want, fmt.Sprintf(`IPaddress  {"dev":"eth0","ipAddress":%q}`, spec))
	}
	want = append(want, `Route  {"destinationIPNet":"10.1.0.0/16","gateway":"10.0.0.254","protocol":"static"}`,
		`Route  {"destinationIPNet":"0.0.0.0/0","gateway":"10.0.0.254","protocol":"boot"}`,
		`Route  {"destinationIPNet":"2001:db8:1::/48","gateway":"2001:db8::2","protocol":"boot"}`)
	got := said(r)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" || len(r.Wrong) > 0 || c.Lines() != len(want)+1 { // the tagged member has two lines
		t.Errorf("%d lines, wrong %v, %s", c.Lines(), r.Wrong, diff)
	}
	for _, dev := range []string{"", ".", "..", "a/b", "/etc"} {
		if _, _, err := newInterfaceConfig([]v1.DeviceAddresses{{Dev: dev, IpAddress: []string{"10.0.0.1/24"}}}, nil, nil); err == nil {
			t.Errorf("%q is accepted as the name of an interface", dev)
		}
	}
}

// TestRoutesLeftOut checks that routes that apply would refuse are not saved, and are counted by
// reason. Only the first accepted gateway of a destination is saved.
func TestRoutesLeftOut(t *testing.T) {
	t.Parallel()
	c, left, err := newInterfaceConfig(nil, []v1.RouteEntry{
		{DestinationIPNet: "::/0", Gateway: "fe80::1", Dev: "eth0", Protocol: 4},
		{DestinationIPNet: "10.1.0.0/16", Gateway: "2001:db8::1", Dev: "eth0", Protocol: 4}, {DestinationIPNet: "10.1.0.0/16", Gateway: "fe80::1", Dev: "eth0", Protocol: 4},
		{DestinationIPNet: "10.2.0.0/16", Gateway: "fe80::1", Dev: "eth0", Protocol: 4}, {DestinationIPNet: "10.2.0.0/16", Gateway: "10.0.0.1", Dev: "eth0", Protocol: 4},
		{DestinationIPNet: "10.2.0.0/16", Gateway: "10.0.0.2", Dev: "eth1", Protocol: 4}, {DestinationIPNet: "10.2.0.0/16", Gateway: "10.0.0.3", Dev: "eth1", Protocol: 4},
		{DestinationIPNet: "10.2.0.0/16", Gateway: "10.0.0.4", Dev: "eth1", Protocol: 4, Metric: 5}, {DestinationIPNet: "10.3.0.0/16", Gateway: "0.0.0.0", Dev: "eth1", Protocol: 3},
		{DestinationIPNet: "10.4.0.0/16", Gateway: "10.0.0.4", Dev: "eth1", Protocol: 186, Metric: 5},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(interfaceConfig{"eth0": {"ipv4route": {"ip route add 10.2.0.0/16 via 10.0.0.1 proto static"}}}, c); diff != "" {
		t.Errorf("the result differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(interfaceLeftOut{
		"have a link-local gateway, such as fe80::1: routes of loxilb name no interface": 1,
		"are IPv4 by an IPv6 gateway": 3,
		"have the destination of a saved route: only one of several gateways is kept": 2,
		"have a metric: routes of loxilb have the default one":                        1,
		"are of a type that loxilb does not create":                                   1,
	}, left); diff != "" {
		t.Errorf("the settings left out differ (-want +got):\n%s", diff)
	}
}

// TestTunnelFrom checks that a tunnel's source is the first address of its interface, whichever is
// read first, and that a line with another source is refused.
func TestTunnelFrom(t *testing.T) {
	t.Parallel()
	const tunnel = "ip link add vxlan7 type vxlan id 7 local %s dev eth0 dstport 4789\n"
	const addresses = "ip addr add fe80::1/64 dev eth0\nip addr add fd00::1/64 dev eth0\nip addr add 10.0.0.1/24 dev eth0\nip addr add 10.0.0.2/24 " +
		"dev eth0\nip addr add 10.0.0.3/24 dev eth1\n" +
		"ip addr add fe80::1/64 dev eth6\nip addr add fd00::1/64 dev eth6\nip addr add fd00::2/64 dev eth6\n"
	for _, c := range []struct {
		text string
		good bool
	}{
		{fmt.Sprintf(tunnel, "10.0.0.1") + addresses, true}, {addresses + fmt.Sprintf(tunnel, "10.0.0.1"), true}, {fmt.Sprintf(tunnel, "10.0.0.1"), false},
		{fmt.Sprintf(tunnel, "10.0.0.2") + addresses, false}, {fmt.Sprintf(tunnel, "fd00::1") + addresses, false}, {fmt.Sprintf(tunnel, "x") + addresses, false},
		{strings.ReplaceAll(fmt.Sprintf(tunnel, "fd00::1"), "eth0", "eth6") + addresses, true}, {strings.ReplaceAll(fmt.Sprintf(tunnel, "fd00::2"), "eth0", "eth6") + addresses, false},
	} {
		r := &interfaceReader{}
		r.Read("f", c.text)
		r.Finish()
		if good := len(r.Wrong) == 0; good != c.good || !good && !strings.HasPrefix(r.Wrong.Error(), "f:1:1: local ") {
			t.Errorf("%s: got %v, want it accepted: %t, or an error with its position", c.text, r.Wrong, c.good)
		}
	}
}

// TestLines checks that hand-written lines are parsed, and that none is passed to a shell.
func TestLines(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"ip address add 10.0.0.1/24 brd 10.0.0.255 dev eth0":          `IPaddress  {"dev":"eth0","ipAddress":"10.0.0.1/24"}`,
		"  ip -4 route add default via 10.0.0.1 ":                     `Route  {"destinationIPNet":"0.0.0.0/0","gateway":"10.0.0.1"}`,
		"ip -6 route add default via fd00::1":                         `Route  {"destinationIPNet":"::/0","gateway":"fd00::1"}`,
		"ip addr add 10.0.0.1/24 brd + dev eth0 scope global":         `IPaddress  {"dev":"eth0","ipAddress":"10.0.0.1/24"}`,
		"ip link add vxlan7 type vxlan id 7 dev eth0 dstport 4789":    `Vxlan  {"epIntf":"eth0","vxlanID":7}`,
		"ip link add eth0.7 link eth0 type vlan protocol 802.1q id 7": "",
		"bridge fdb add 02:00:00:00:00:01 dev eth0 master static":     `FDB  {"dev":"eth0","macAddress":"02:00:00:00:00:01"}`,
		"ip link add vlan7 type bridge":                               `Vlan  {"vid":7}`,
		"ip link set eth1 master vlan7":                               `VlanMember {"vid":7} {"dev":"eth1"}`,
		"ip link set eth1 up":                                         "",
		"# ip link set eth1 up; reboot":                               "",
	} {
		r := &interfaceReader{}
		r.Read("f", line+"\n\n")
		if got := strings.Join(said(r), "; "); got != want || len(r.Wrong) > 0 {
			t.Errorf("%s: got %s, %v, want %s, no r.Wrong", line, got, r.Wrong, want)
		}
	}
	for line, want := range map[string]string{
		"ip addr add 10.0.0.1/24 dev eth0; reboot":                       `f:2:1: unsupported option "reboot" (allowed: dev, broadcast, brd, scope`,
		"rm -rf / --no-preserve-root":                                    `f:2:1: unsupported line "rm -rf /": use ip addr|route|neigh add`,
		"ip addr":                                                        "unsupported line",
		"ip addr add 10.0.0.1/24 dev":                                    "dev has no value",
		"ip addr add 10.0.0.1/24 dev a dev b":                            "dev is given twice",
		"ip link set dev eth0 mtu 9000":                                  `unsupported option "mtu" (allowed: master`,
		"ip link set dev dev":                                            "",
		"ip link add br0 type bridge":                                    `name "br0" is not supported (allowed: vlanNUMBER)`,
		"ip link add vlan007 type bridge":                                "is not supported (allowed: vlanNUMBER)",
		"ip link add vxlan7 type vxlan id 8 dev eth0":                    "vxlan7 has id",
		"ip addr add 10.0.0.1/24 dev eth0 scope link":                    `scope "link" is not supported (allowed: global)`,
		"ip addr add 10.0.0.1/24 dev eth0 brd 10.0.0.127":                `brd "10.0.0.127" is not supported (allowed: 10.0.0.255)`,
		"ip addr add 10.0.0.1/32 dev eth0 broadcast 10.0.0.1":            `broadcast "10.0.0.1" is not supported (allowed: none)`,
		"ip route add 10.1.0.0/16 via 10.0.0.1 dev eth0":                 "dev is not supported in a route",
		"ip route add 10.1.0.0/16 via 10.0.0.1 onlink":                   "onlink is not supported in a route",
		"ip route add 10.1.0.0/16 via 10.0.0.1 metric 5":                 `unsupported option "metric"`,
		"ip link add vxlan7 type vxlan id 7 dev eth0 dstport 8472":       `dstport "8472" is not supported (allowed: 4789)`,
		"ip link add vxlan7 type vxlan id 7 dev eth0 nolearning":         `unsupported option "nolearning"`,
		"ip link add vxlan7 type vxlan id 7 dev eth0 protocol 802.1Q":    "protocol is not supported for type vxlan",
		"ip link add link e name e.7 type vlan id 7 protocol 802.1ad":    `protocol "802.1ad" is not supported (allowed: 802.1Q)`,
		"ip link add link e name e.7 type vlan id 7 dev f":               "dev is not supported for type vlan",
		"ip link add vlan7 type bridge id 8":                             "id is not supported for type bridge",
		"bridge fdb add 02:00:00:00:00:01 dev eth0 master permanent":     "master with permanent or dst",
		"ip link add x type dummy":                                       `type "dummy" is not supported`,
		"ip neigh add 10.0.0.1 lladdr 02:00:00:00:00:01 dev a nud stale": `nud "stale" is not supported`,
		"bridge fdb add 02:00:00:00:00:01 dst 10.0.0.1 dev vxlan7":       "tunnel entry for",
	} {
		r := &interfaceReader{}
		r.Read("f", "\n"+line+"\n")
		if len(r.Objects) > 0 || len(r.Wrong) != 1 || !strings.Contains(r.Wrong.Error(), want) {
			t.Errorf("%s: %v, want %s", line, r.Wrong, want)
		}
	}
	r := &interfaceReader{}
	r.Read("f", strings.Repeat("x\n", 10*maxWrongLines))
	if len(r.Wrong) != maxWrongLines {
		t.Errorf("%d lines are named", len(r.Wrong))
	}
}

// FuzzRead checks that no text crashes the reader, and that its output is JSON.
func FuzzRead(f *testing.F) {
	f.Add("ip link add link eth1 name eth1.7 type vlan id 7\nip link set eth1.7 master vlan7\nbridge fdb append 0 dst 1 dev vxlan1\nip -6 route add\nip link set dev")
	f.Fuzz(func(t *testing.T, text string) {
		r := &interfaceReader{}
		r.Read("f", text)
		for _, o := range r.Objects {
			if !json.Valid(o.Spec) {
				t.Errorf("got %s, want valid JSON in o.Spec", o.Spec)
			}
		}
	})
}
