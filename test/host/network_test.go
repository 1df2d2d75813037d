package host

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf/link"

	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// network is the virtual network:
//
//	client 10.1.0.1  --- front, spare [guest] back --- 10.2.0.1, .2, .3 server
//	       10.9.0.1  --------------- direct ------------- 10.9.0.2
//
// Each IPv4 address has an IPv6 counterpart. Replies of mode dsr take the direct link.
type network struct {
	*guest
	t              testing.TB
	scenario       scenario
	client, server *netnstest.Host
	loxilb         string // the program
	dir            string // files that the servers offer and receive
	tags           []link.Link
}

// side is the network behind a card of the guest.
type side struct {
	host         *netnstest.Host
	v4, v6       string // the network, without the last byte
	tag4, tag6   int    // of the VLANs in topology trunk
	card, second string // second is for a bond
}

func (n *network) sides() []side {
	return []side{
		{n.client, "10.1.0.", "fd01::", 10, 11, "front", "spare"},
		{n.server, "10.2.0.", "fd02::", 20, 20, "back", ""},
	}
}

// tap is the other end of a card of the guest.
type tap struct {
	host *netnstest.Host
	name string
}

// cards returns the cards in use.
func (n *network) cards() (list []tap) {
	for _, s := range n.sides() {
		list = append(list, tap{s.host, s.card})
		if s.second != "" && n.scenario.topology == bond {
			list = append(list, tap{s.host, s.second})
		}
	}
	return list
}

func newNetwork(t testing.TB) *network {
	t.Helper()
	lab := labtest.New(t)
	n := &network{t: t, dir: t.TempDir(), loxilb: filepath.Join(os.Getenv("LOXILB_HOST_PROGRAMS"), "loxilb")}
	for _, h := range []struct {
		name string
		host **netnstest.Host
	}{{"client", &n.client}, {"server", &n.server}} {
		host, err := lab.Host(h.name)
		if err != nil {
			t.Fatal(err)
		}
		*h.host = host
	}
	n.guest = boot(t, card{"front", n.client, 2}, card{"spare", n.client, 2}, card{"back", n.server, 4})
	n.connect(lab)
	n.serve()
	n.decapsulate()
	return n
}

// connect gives both sides their routes, and connects them directly.
func (n *network) connect(lab *netnstest.Lab) {
	n.t.Helper()
	err := lab.Link(
		netnstest.End{Host: n.client, Interface: "direct", Addresses: prefixes("10.9.0.1/24", "fd09::1/64")},
		netnstest.End{Host: n.server, Interface: "direct", Addresses: prefixes("10.9.0.2/24", "fd09::2/64")}, 9000)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, h := range []*netnstest.Host{n.client, n.server} {
		for _, s := range []string{"all/arp_ignore=1", "all/arp_announce=2", "all/rp_filter=0", "default/rp_filter=0"} {
			n.exec(h, "sysctl", "-qw", "net/ipv4/conf/"+s)
		}
	}
	for _, a := range []string{"30.30.30.1/32", "fd30::1/128"} { // an outsider, for mode egress
		n.exec(n.client, "ip", "address", "add", a, "dev", "lo")
	}
	for _, m := range modes {
		if m.path == direct {
			n.exec(n.server, "ip", "address", "add", m.vip(4)+"/32", "dev", "lo")
			n.exec(n.server, "ip", "address", "add", m.vip(6)+"/128", "dev", "lo")
		}
	}
}

// serve starts nginx at both sides. Files are downloaded from dir/SIDE, and uploaded there.
func (n *network) serve() {
	n.t.Helper()
	for _, h := range []*netnstest.Host{n.client, n.server} {
		dir := filepath.Join(n.dir, h.Name)
		config := filepath.Join(dir, "nginx.conf")
		err := errors.Join(os.Mkdir(dir, 0o777), os.Chmod(n.dir, 0o755), os.Chmod(dir, 0o777),
			os.WriteFile(config, fmt.Appendf(nil, nginx, dir), 0o644),
			os.WriteFile(filepath.Join(dir, "small"), []byte(smallPage), 0o644),
			os.WriteFile(filepath.Join(dir, "large"), content(), 0o644))
		if err != nil {
			n.t.Fatal(err)
		}
		if _, err := h.Start(netnstest.Command{Args: []string{"nginx", "-e", "stderr", "-c", config}}); err != nil {
			n.t.Fatal(err)
		}
	}
}

// nginx is the configuration of the servers.
const nginx = `
daemon off;
master_process off;
user root;
pid %[1]s/nginx.pid;
error_log stderr;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	client_max_body_size 100m;
	server {
		listen 5001 backlog=1024;
		listen [::]:5001 backlog=1024;
		root %[1]s;
		dav_methods PUT;
		location = /source { return 200 "$remote_addr\n"; }
	}
}
`

// exec runs a program in a namespace.
func (n *network) exec(h *netnstest.Host, args ...string) string {
	n.t.Helper()
	out, err := h.Run(args...)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// topology is the kind of interfaces that have the guest's addresses.
type topology string

const (
	plain  topology = "plain"  // the cards
	trunk  topology = "trunk"  // VLANs on the cards, whose other ends accept no other frames
	bond   topology = "bond"   // an active-backup bond of two cards, and a card
	bridge topology = "bridge" // a bridge on each card
)

// build creates a topology on both sides, with this MTU.
func (n *network) build(top topology, mtu int) {
	n.t.Helper()
	for _, s := range n.sides() {
		own, its, its6 := s.card, s.card, ""
		cards := []string{s.card}
		switch top {
		case trunk:
			its, its6 = fmt.Sprint("vlan", s.tag4), fmt.Sprint("vlan", s.tag6)
			n.run(`for i in %d %d; do
				[ -e /sys/class/net/vlan$i ] || ip link add vlan$i link %s type vlan id $i
			done`, s.tag4, s.tag6, s.card)
			n.tag(s)
		case bridge:
			its = "bridge" + s.card
			n.run("ip link add %s type bridge; ip link set %s master %[1]s", its, s.card)
		case bond:
			if s.second == "" {
				break
			}
			its, own = "bond1", "switch"
			cards = append(cards, s.second)
			n.run("ip link add bond1 type bond mode active-backup miimon 100")
			n.exec(s.host, "ip", "link", "add", own, "type", "bridge")
			for _, c := range cards {
				n.run("ip link set %s down; ip link set %[1]s master bond1", c)
				n.exec(s.host, "ip", "link", "set", c, "master", own)
			}
		}
		n.up(s, own, its, cmp.Or(its6, its), cards, mtu)
	}
	n.exec(n.client, "ip", "route", "replace", "default", "via", "10.1.0.254")
	n.exec(n.client, "ip", "route", "replace", "default", "via", "fd01::fe")
	n.exec(n.server, "ip", "route", "replace", "default", "via", "10.2.0.254")
	n.exec(n.server, "ip", "route", "replace", "default", "via", "fd02::fe")
	n.run("ip route replace default via 10.1.0.1; ip route replace default via fd01::1")
}

// up gives a side's two interfaces their MTU and addresses, and sets them up. The guest may have
// another interface for IPv6.
func (n *network) up(s side, own, its, its6 string, cards []string, mtu int) {
	n.t.Helper()
	for _, link := range append(cards, own) {
		n.exec(s.host, "ip", "link", "set", link, "mtu", fmt.Sprint(mtu), "up")
	}
	for _, link := range append(cards, its, its6) {
		n.run("ip link set %s mtu %d up", link, mtu)
	}
	n.run("ip address add %s254/24 dev %s; ip address add %sfe/64 dev %s nodad", s.v4, its, s.v6, its6)
	hosts := 1
	if s.host == n.server {
		hosts = 3
	}
	for i := range hosts {
		n.exec(s.host, "ip", "address", "add", fmt.Sprint(s.v4, i+1, "/24"), "dev", own)
		n.exec(s.host, "ip", "address", "add", fmt.Sprint(s.v6, i+1, "/64"), "dev", own, "nodad")
	}
}

// clear removes a topology.
func (n *network) clear() {
	n.t.Helper()
	for _, l := range n.tags {
		if err := l.Close(); err != nil {
			n.t.Fatal(err)
		}
	}
	n.tags = nil
	n.run(`for i in vlan10 vlan11 vlan20 bridgefront bridgeback bond1; do
		[ ! -e /sys/class/net/$i ] || ip link del $i
	done
	for i in front spare back; do ip address flush dev $i; ip link set $i down; done`)
	for _, s := range n.sides() {
		n.exec(s.host, "sh", "-c", "! ip link show switch || ip link del switch; ip address flush dev "+s.card+"; ip link set "+s.card+" down")
	}
}
