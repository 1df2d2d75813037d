package cluster_test

import (
	"flag"
	"testing"
	"time"

	"loxilb/test/net/rig"
)

// TestCluster checks that no connection breaks, in any mode and IP version, when a node vanishes
// while an endpoint is removed, and when another one is killed and returns.
func TestCluster(t *testing.T) {
	t.Parallel()
	if rig.IsLong() {
		t.Skip("TestProof has these cases, too")
	}
	p := newProof(t, options{bfd: 300 * time.Millisecond, bin: rig.Bin()}, load{TCP: 64, UDP: 16, PerSecond: 20, Pace: 100 * time.Millisecond})
	p.run("cable", func() { p.removed(0, 2) })
	p.run("kill", func() { p.killed(1) })
	p.run("QUIC", p.quic)
	p.run("services differ", p.drift)
}

// Flags of TestProof.
var (
	rounds    = flag.Int("rounds", 1, "how often TestProof runs each case")
	held      = flag.Int("held", 3000, "TCP connections that TestProof holds; a tenth as many flows of datagrams")
	perSecond = flag.Int("new", 500, "new TCP connections per second")
	pace      = flag.Duration("pace", 400*time.Millisecond, "time between two messages of a connection")
	out       = flag.String("out", "", "directory for the result of TestProof: cluster.json and cluster.txt")
	certified = flag.Bool("certificates", false, "nodes of TestProof have certificates instead of a key")
	before    = flag.String("before", "", "directory with loxilb and loxicmd of the previous version, with which the nodes of TestProof start, before they are upgraded")
)

func fullLoad() load {
	return load{TCP: *held, UDP: *held / 10, PerSecond: *perSecond, Pace: *pace}
}

// TestProof runs all cases of docs/cluster.md, with many connections.
func TestProof(t *testing.T) {
	rig.Long(t)
	const (
		upgrade   = "rolling upgrade from the previous version, with another key"
		downgrade = "rolling return to the previous version, with another key"
	)
	upgrades, first := *before != "" && chosen.MatchString(upgrade), rig.Bin()
	if upgrades {
		first = *before
	}
	p := newProof(t, options{bfd: 100 * time.Millisecond, bin: first, certified: *certified}, fullLoad())
	if upgrades {
		p.run(upgrade, func() { p.upgraded(rig.Bin()) })
		p.run(downgrade, func() { p.upgraded(*before) })
		p.run(upgrade, func() { p.upgraded(rig.Bin()) })
	}
	for n := range *rounds {
		node := n % fleetSize
		p.run("a node's process is stopped", func() { p.stopped(node) })
		p.run("a node's cable is cut", func() { p.cable(node, func() {}) })
		p.run("the same while an endpoint is removed", func() { p.removed(node, (node+1)%fleetSize) })
		p.run("kill -9 and restart", func() { p.killed(node) })
		p.run("partition of 10 s", func() { p.partitioned(10*time.Second, 64) })
		p.run("the key of the nodes is replaced", p.keysReplaced)
		p.run("a node joins, 200,000 copies", func() { p.joins(node, 200_000) })
		p.run("new connections as fast as the machine can", func() { p.busy(10*time.Second, targets("tcp")) })
		p.run("the same through one node", func() { p.busy(10*time.Second, []target{{"default", "tcp", false}}) })
		p.run("SYN flood", func() { p.flooded(10 * time.Second) })
		p.run("a peer is stopped for 60 s", func() { p.peerStopped(node, time.Minute) })
		p.run("wrong key, seed, name, --self", func() { p.refused(node) })
	}
	p.write(*out, "cluster")
}
