package netdev

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestSelect(t *testing.T) {
	t.Parallel()
	links := []Link{{Name: "lo", Flags: unix.IFF_LOOPBACK}, {Name: "eth0"}, {Name: "eth1"}, {Name: "veth7"}}
	tests := []struct {
		name, whitelist, blacklist string
		want                       []string
	}{
		{"all but loopback", "", "", []string{"eth0", "eth1", "veth7"}},
		{"whitelist", "^eth", "", []string{"eth0", "eth1"}},
		{"whitelist never selects loopback", ".*", "", []string{"eth0", "eth1", "veth7"}},
		{"blacklist", "", "eth1|^v", []string{"eth0"}},
		{"whitelist overrides blacklist", "eth1", "eth1", []string{"eth1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, l := range Select(links, pattern(tt.whitelist), pattern(tt.blacklist)) {
				got = append(got, l.Name)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("the result differs (-want +got):\n%s", diff)
			}
		})
	}
}

func pattern(re string) *regexp.Regexp {
	if re == "" {
		return nil
	}
	return regexp.MustCompile(re)
}

func (n *Net) named(name string) (Link, error) {
	for _, l := range n.Links() {
		if l.Name == name {
			return l, nil
		}
	}
	return Link{}, fmt.Errorf("no link %s", name)
}

func TestLinksSnapshot(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	run(t, a, "ip", "link", "add", "v0", "mtu", "1400", "type", "veth", "peer", "name", "v1")
	run(t, a, "ip", "link", "add", "br0", "type", "bridge")
	run(t, a, "ip", "link", "set", "v0", "master", "br0")
	run(t, a, "ip", "tuntap", "add", "tun0", "mode", "tun")
	n := openHost(t, a)

	get := func(name string) Link {
		l, err := n.named(name)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	lo, eth0, v0, v1, br0, tun0 := get("lo"), get("eth0"), get("v0"), get("v1"), get("br0"), get("tun0")
	mac, err := a.MAC("eth0")
	if err != nil {
		t.Fatal(err)
	}
	checks := map[string]bool{
		"lo is loopback":                  lo.Loopback() && lo.Up && !lo.Ethernet(),
		"eth0 is a veth, up":              eth0.Kind == "veth" && eth0.Up && eth0.Ethernet() && eth0.MTU == 1500,
		"eth0 has its MAC":                eth0.MAC.String() == mac.String(),
		"eth0's peer is elsewhere":        eth0.PeerElsewhere && eth0.PeerIndex != 0,
		"v0's peer is here":               !v0.PeerElsewhere && v0.PeerIndex == v1.Index,
		"v0 is down, small, in a bridge":  !v0.Up && v0.MTU == 1400 && v0.Master == br0.Index,
		"tun0 has no Ethernet header":     tun0.Type == unix.ARPHRD_NONE && !tun0.Ethernet() && tun0.MAC == nil,
		"a bridge has no peer":            br0.Kind == "bridge" && br0.PeerIndex == 0,
		"snapshot is ordered, by indexes": lo.Index == 1 && n.Links()[0].Index == 1,
	}
	for what, ok := range checks {
		if !ok {
			t.Errorf("this is false: %s; links: %+v", what, n.Links())
		}
	}
}

// TestAnsweringLinks checks which links answer ARP for a VIP: those whose network holds it.
func TestAnsweringLinks(t *testing.T) {
	t.Parallel()
	a, _ := pair(t) // eth0 has 10.1.0.1/24
	for _, line := range []string{
		"link add br0 up type bridge",
		"address add 10.5.0.1/24 dev br0",
		"link add v0 up type veth peer name v1",
		"address add 10.1.0.9/28 dev v0",
		"address add 10.6.0.1/24 dev v0",
		"address add 10.1.0.77/32 dev v0",
	} {
		run(t, a, append([]string{"ip"}, strings.Fields(line)...)...)
	}
	n := openHost(t, a)
	for vip, want := range map[string]string{
		"10.1.0.100":     "eth0",
		"10.1.0.8":       "eth0 v0",
		"10.5.0.100":     "br0",
		"10.6.0.100":     "v0",
		"20.20.20.1":     "", // all
		"10.1.0.1":       "", // the machine's own
		"10.1.0.77":      "",
		"2001:db8:1::50": "",
	} {
		var got []string
		for _, index := range n.AnsweringLinks(netip.MustParseAddr(vip)) {
			got = append(got, n.mirror.Link(index).Name)
		}
		slices.Sort(got)
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s is answered on %q, want %q", vip, got, want)
		}
	}
}
