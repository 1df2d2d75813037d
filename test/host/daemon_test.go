package host

import (
	"strconv"
	"strings"
	"testing"
)

// setTest sets the test that fails on errors.
func (n *network) setTest(t testing.TB) { n.t, n.guest.t = t, t }

// startDaemon starts the load balancer in the guest without earlier state, and waits until it is
// attached.
func (n *network) startDaemon(s scenario) {
	n.t.Helper()
	n.run(`rm -rf /var/lib/loxilb
	loxilb --xdp=%s --localsockpolicy=%t >/tmp/loxilb.log 2>&1 &
	echo $! >/tmp/loxilb.pid
	i=0
	until wget -qO- http://127.0.0.1:11111/readyz >/dev/null 2>&1; do
		i=$((i + 1))
		[ $i -lt 2400 ] || { cat /tmp/loxilb.log; exit 1; }
		usleep 100000
	done`, s.xdp, s.sockets == socketsOn)
}

// metric returns the value of a metric without labels.
func (n *network) metric(name string) int {
	n.t.Helper()
	out := n.run(`curl -sS http://127.0.0.1:11111/netlox/v1/metrics | sed -n 's/^%s //p'`, name)
	value, err := strconv.Atoi(out)
	if err != nil {
		n.t.Fatalf("metric %s: %v", name, err)
	}
	return value
}

// forwardedByXDP returns how many packets XDP has forwarded.
func (n *network) forwardedByXDP() int { return n.metric("loxilb_xdp_forwarded_packets_total") }

// checkForwarded checks whether XDP forwards a mode's packets: it must not forward tagged frames,
// packets of tunnels, and those of the guest's own sockets.
func (n *network) checkForwarded(m mode, name string, byXDP int) {
	n.t.Helper()
	if n.scenario.xdp == "native" {
		n.t.Logf("%s: XDP has forwarded %d packets", name, byXDP)
	}
	may := n.scenario.xdp == "native" && n.scenario.topology != trunk && m.path != own && !m.tunnel()
	if must := may && n.scenario.xdpForwards(); byXDP == 0 && must || byXDP > 0 && !may {
		n.t.Errorf("%s: XDP has forwarded %d packets", name, byXDP)
	}
}

// warmUp uses up the buffers that a card has prepared before XDP was attached: the driver loses
// large frames in these.
func (n *network) warmUp() {
	n.t.Helper()
	if n.scenario.xdp == "native" {
		n.measure("the first packets", false, n.balancedTransfers(modes[0], 4))
	}
}

// checkDaemon checks that the data path has dropped no packet during all transfers.
func (n *network) checkDaemon() {
	n.t.Helper()
	drops := n.run("curl -sS http://127.0.0.1:11111/netlox/v1/metrics | grep ^loxilb_drops_total")
	for line := range strings.Lines(drops) {
		if line = strings.TrimSpace(line); !strings.HasSuffix(line, " 0") {
			n.t.Errorf("dropped: %s", line)
		}
	}
}

// xdpForwards reports whether XDP must forward packets.
func (s scenario) xdpForwards() bool { return s.xdp == "native" && s.topology == plain }

// reset stops the daemon, detaches its programs, and removes the topology.
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
