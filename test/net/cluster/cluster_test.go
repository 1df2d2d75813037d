package cluster_test

import (
	"flag"
	"testing"
	"time"

	"loxilb/test/net/rig"
)

// TestCluster checks that no connection breaks, in any mode and IP version, when a node is
// disconnected while an endpoint is removed, and when another node is killed and restarted.
func TestCluster(t *testing.T) {
	t.Parallel()
	if rig.IsLong() {
		t.Skip("TestFailures has these cases, too")
	}
	e := newExperiment(t, options{bfd: 300 * time.Millisecond, bin: rig.Bin()}, load{TCP: 64, UDP: 16, PerSecond: 20, Pace: 100 * time.Millisecond})
	e.run("cable", func() { e.cutNodeAndRemoveEndpoint(0, 2) })
	e.run("kill", func() { e.killNode(1) })
	e.run("QUIC", e.checkQUIC)
	e.run("services differ", e.checkDifference)
}

// Flags of TestFailures.
var (
	roundCount      = flag.Int("rounds", 1, "how often TestFailures runs each case")
	heldCount       = flag.Int("held", 3000, "TCP connections that TestFailures holds; it holds a tenth as many UDP flows")
	perSecond       = flag.Int("new", 500, "new TCP connections per second")
	pace            = flag.Duration("pace", 400*time.Millisecond, "time between two messages of a connection")
	out             = flag.String("out", "", "directory for the result of TestFailures: cluster.json and cluster.txt")
	useCertificates = flag.Bool("certificates", false, "nodes of TestFailures have certificates instead of a key")
	before          = flag.String("before", "", "directory with loxilb and loxicmd of the previous version; TestFailures upgrades its nodes from it")
)

func fullLoad() load {
	return load{TCP: *heldCount, UDP: *heldCount / 10, PerSecond: *perSecond, Pace: *pace}
}

// TestFailures runs all cases of docs/cluster.md with many connections.
func TestFailures(t *testing.T) {
	rig.Long(t)
	const (
		upgrade   = "rolling upgrade from the previous version, with another key"
		downgrade = "rolling return to the previous version, with another key"
	)
	upgrades, first := *before != "" && caseFilter.MatchString(upgrade), rig.Bin()
	if upgrades {
		first = *before
	}
	e := newExperiment(t, options{bfd: 100 * time.Millisecond, bin: first, useCertificates: *useCertificates}, fullLoad())
	if upgrades {
		e.run(upgrade, func() { e.upgradeNodes(rig.Bin()) })
		e.run(downgrade, func() { e.upgradeNodes(*before) })
		e.run(upgrade, func() { e.upgradeNodes(rig.Bin()) })
	}
	for n := range *roundCount {
		node := n % fleetSize
		e.run("a node's process is stopped", func() { e.pauseNode(node) })
		e.run("a node's cable is cut", func() { e.cutNode(node, func() {}) })
		e.run("the same while an endpoint is removed", func() { e.cutNodeAndRemoveEndpoint(node, (node+1)%fleetSize) })
		e.run("kill -9 and restart", func() { e.killNode(node) })
		e.run("partition of 10 s", func() { e.partition(10*time.Second, 64) })
		e.run("the key of the nodes is replaced", e.replaceAllKeys)
		e.run("a node joins, 200,000 copies", func() { e.rejoin(node, 200_000) })
		e.run("new connections as fast as the machine can", func() { e.openFast(10*time.Second, targets("tcp")) })
		e.run("the same through one node", func() { e.openFast(10*time.Second, []target{{"default", "tcp", false}}) })
		e.run("SYN flood", func() { e.floodSYNs(10 * time.Second) })
		e.run("a peer is stopped for 60 s", func() { e.pausePeer(node, time.Minute) })
		e.run("wrong key, seed, name, --self", func() { e.startMisconfigured(node) })
	}
	e.write(*out, "cluster")
}
