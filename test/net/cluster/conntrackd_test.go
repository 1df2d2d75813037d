package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// bfdTime is the time after which a router with BFD at 3 x 100 ms considers a node down.
const bfdTime = 300 * time.Millisecond

// TestConntrackd measures how many connections a failing node breaks if two nodes balance by
// nftables and exchange connections by conntrackd, for comparison with a cluster of loxilb.
// conntrackd uses its reliable mode FTFW, and inserts connections into the kernel's table
// immediately. One node has all connections, since conntrackd supports nothing else.
func TestConntrackd(t *testing.T) {
	rig.Long(t)
	if _, err := os.Stat("/usr/sbin/conntrackd"); err != nil {
		t.Skip("Debian's package conntrackd is not installed")
	}
	lab := labtest.New(t)
	f := &fleet{t: t}
	f.build(lab)
	f.serve()
	var daemons [2]*netnstest.Process
	for i := range daemons {
		f.nodes[i].balanceByNftables()
		daemons[i] = f.nodes[i].conntrackd(f.nodes[1-i])
	}
	f.routeTo(0)
	l := fullLoad()
	l.onlyMode = "default"
	c := startClients(f, l)
	c.awaitAnswers()
	for n := range *roundCount {
		active := n % 2
		c.reset()
		ended := c.expectSilence()
		f.nodes[active].setCut(true)
		after := time.Now().Add(bfdTime)
		await.True(t, patience, "the end of BFD's time", func() bool { return time.Now().After(after) })
		f.routeTo(1 - active) // as BFD would
		ended()
		c.awaitAnswers()
		f.nodes[active].setCut(false)
		rig.MustRun(t, f.nodes[active].host, "conntrackd", "-C", daemonConfig(f.nodes[active]), "-n") // requests the connections that it has missed
		c.awaitAnswers()
		o := c.observe()
		t.Logf("conntrackd, a node's cable is cut: %d connections opened, %d broken, %d opened through a silent node and broken, %d not opened; longest silence %.3f s, of UDP %.3f s\n%v",
			o.Opened, o.Broken, o.Late, o.NotOpened, o.LongestTCP, o.LongestUDP, o.Losses)
		c.replaceBroken()
	}
}

// routeTo makes the router send a node the packets to the VIP, and the endpoints' replies.
func (f *fleet) routeTo(node int) {
	f.t.Helper()
	for _, to := range []string{vip(false, "default"), prefix(false, defaultModeNetwork, 0).Masked().String()} {
		rig.MustRun(f.t, f.router, "ip", "route", "replace", to, "via", address(false, 2, node+1))
	}
}

// balanceByNftables configures nftables on a node: it uses the endpoints in turn, and drops packets
// of unknown connections.
func (m *member) balanceByNftables() {
	for _, s := range [][2]string{
		{"net/ipv4/ip_forward", "1"}, {"net/netfilter/nf_conntrack_tcp_loose", "0"}, {"net/netfilter/nf_conntrack_tcp_be_liberal", "1"},
		{"net/ipv4/conf/all/send_redirects", "0"}, {"net/ipv4/conf/default/send_redirects", "0"}, {"net/ipv4/conf/eth0/send_redirects", "0"},
	} {
		must(m.fleet.t, m.host.Sysctl(s[0], s[1]))
	}
	list := fmt.Sprintf("numgen inc mod 3 map { 0 : %s, 1 : %s, 2 : %s }", address(false, 9, 1), address(false, 9, 2), address(false, 9, 3))
	rig.MustRun(m.fleet.t, m.host, "nft", fmt.Sprintf(`table ip balance {
	chain in { type nat hook prerouting priority -100; ip daddr %[1]s tcp dport 80 dnat to %[2]s; ip daddr %[1]s udp dport 53 dnat to %[2]s; }
	chain through { type filter hook forward priority 0; ct state invalid drop; }
}`, vip(false, "default"), list))
}

func daemonConfig(m *member) string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("conntrackd-%d-%s.conf", os.Getpid(), m.host.Name))
}

// conntrackd starts conntrackd on a node.
func (m *member) conntrackd(other *member) *netnstest.Process {
	t := m.fleet.t
	t.Helper()
	path := daemonConfig(m)
	t.Cleanup(func() { _ = os.Remove(path) })
	must(t, os.WriteFile(path, fmt.Appendf(nil, `Sync {
	Mode FTFW {
		DisableExternalCache yes
	}
	UDP {
		IPv4_address %s
		IPv4_Destination_Address %s
		Port 3780
		Interface eth0
		SndSocketBuffer 8388608
		RcvSocketBuffer 8388608
		Checksum on
	}
}
General {
	HashSize 65536
	HashLimit 1000000
	LogFile off
	Syslog off
	LockFile %s.lock
	UNIX {
		Path %s.sock
	}
	NetlinkBufferSize 8388608
	NetlinkBufferSizeMaxGrowth 16777216
	Filter From Userspace {
		Protocol Accept {
			TCP
			UDP
		}
		Address Ignore {
			IPv4_address 127.0.0.1
			IPv4_address %s
			IPv4_address %s
		}
	}
}
`, address(false, 2, m.number), address(false, 2, other.number), path, path, address(false, 2, m.number), address(false, 2, other.number)), 0o600))
	p, err := m.host.Start(netnstest.Command{Args: []string{"conntrackd", "-C", path}})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("conntrackd of %s:\n%s", m.host.Name, p.Output())
		}
		_ = os.Remove(path + ".lock")
	})
	await.NoError(t, patience, func() error {
		_, err := os.Stat(path + ".sock")
		return err
	})
	return p
}
