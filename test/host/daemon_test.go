package host

import (
	"fmt"
	"strings"
	"testing"
)

// setTest has faults be those of another test.
func (n *network) setTest(t testing.TB) { n.t, n.guest.t = t, t }

// setOffloads switches the offloads of the guest's cards and of their taps.
func (n *network) setOffloads(o offloads) {
	n.t.Helper()
	own, its := "off", "off"
	if o == offloadsOn {
		own = "on"
	}
	if o != offloadsOff {
		its = "on"
	}
	for _, s := range n.sides() {
		for _, c := range []string{s.card, s.second} {
			if c == "" {
				continue
			}
			// a card whose features depend on others takes what it can
			n.exec(s.host, "sh", "-c", fmt.Sprintf("ethtool -K %s tx %s sg %[2]s tso %[2]s gso %[2]s gro %[2]s || true", c, own))
			n.run("ethtool -K %s tx %s sg %[2]s tso %[2]s gso %[2]s gro %[2]s || true", c, its)
		}
	}
}

// startDaemon starts the load balancer in the guest, without what an earlier one knew, and waits
// until it is attached.
func (n *network) startDaemon(s scenario) {
	n.t.Helper()
	n.run(`rm -rf /var/lib/loxilb
	loxilb --xdp %s >/tmp/loxilb.log 2>&1 &
	echo $! >/tmp/loxilb.pid
	i=0
	until wget -qO- http://127.0.0.1:11111/readyz >/dev/null 2>&1; do
		i=$((i + 1))
		[ $i -lt 2400 ] || { cat /tmp/loxilb.log; exit 1; }
		usleep 100000
	done`, s.xdp)
}

// checkDaemon looks at what the daemon has counted in all transfers: XDP has forwarded where it
// can, and nothing was dropped.
func (n *network) checkDaemon(s scenario) {
	n.t.Helper()
	for line := range strings.Lines(n.run("curl -sS http://127.0.0.1:11111/netlox/v1/metrics")) {
		line = strings.TrimSpace(line)
		name, value, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(name, "loxilb_drops_total") && value != "0":
			n.t.Errorf("dropped: %s", line)
		case name == "loxilb_xdp_forwarded_packets_total":
			n.t.Logf("XDP has forwarded %s packets", value)
			if value == "0" && s.xdpForwards() || value != "0" && !s.xdpMayForward() {
				n.t.Errorf("XDP has forwarded %s packets", value)
			}
		}
	}
}

// xdpForwards reports whether XDP must forward packets.
func (s scenario) xdpForwards() bool { return s.xdp == "native" && s.topology == plain }

// xdpMayForward reports whether XDP may forward packets: it leaves frames with VLAN tags to tc.
func (s scenario) xdpMayForward() bool { return s.xdp == "native" && s.topology != vlan }

// reset stops the daemon, detaches its programs, and takes the topology back.
func (n *network) reset() {
	n.t.Helper()
	if n.t.Failed() {
		out, _ := n.try("cat /tmp/loxilb.log; loxicmd get ct | head -40; ip -d link; dmesg | tail -30")
		n.t.Log(out)
	}
	n.run(`if [ -e /tmp/loxilb.pid ]; then
		kill $(cat /tmp/loxilb.pid) || true
		while [ -e /proc/$(cat /tmp/loxilb.pid) ]; do usleep 50000; done
		rm /tmp/loxilb.pid
		loxilb --detach
	fi`)
	n.clear()
}
