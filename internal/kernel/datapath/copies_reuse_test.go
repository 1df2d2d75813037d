package datapath

import (
	"net/netip"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// numbersAhead is the increase of sequence numbers from one connection of a port to the next: what
// the clock of RFC 6528 adds in a second.
const numbersAhead = 1_000_000 * 16

// TestCopiesOfReusedPorts checks that a node that has missed the end of a connection accepts the
// copy of the next connection with the same client's port, or with the same source port.
func TestCopiesOfReusedPorts(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, tcpCopies,
		"10.0.0.3:80/tcp mode=fullnat snat=10.9.9.9 endpoints=192.0.2.1:8080",
		"10.0.0.6:80/tcp mode=dsr endpoints=192.0.2.1:80")
	c.subtest(t, "closed, same generation", c.reopened)
	c.subtest(t, "closed by one side, same generation", c.halfClosed)
	c.subtest(t, "dsr, same generation", c.reopenedDSR)
	c.subtest(t, "used by packets of the next connection", c.usedByNext)
	c.subtest(t, "source port", c.sourceReused)
	c.subtest(t, "numbers that have wrapped around", c.wrapped)
}

var (
	reusingClient   = netip.MustParseAddrPort("198.51.100.1:40000")
	reusingVIP      = netip.MustParseAddrPort("10.0.0.1:80")
	reusingEndpoint = netip.MustParseAddrPort("192.0.2.1:8080")
)

const (
	resetFlag     = uint8(bpf.TcConnectionFlagCONN_RESET)
	finClientFlag = uint8(bpf.TcConnectionFlagCONN_FIN_CLIENT)
)

// successor returns the copy of the next connection of the same ports.
func successor(one report.ConnectionCopy, generations uint8) report.ConnectionCopy {
	one.Generation += generations
	one.Idle = 0
	one.Flags &^= resetFlag | finClientFlag
	one.Numbers.Sent += numbersAhead
	one.Numbers.ReplySent += numbersAhead
	one.Numbers.Acked += numbersAhead
	one.Numbers.ReplyAcked += numbersAhead
	return one
}

// putAll inserts copies at the second node, and checks the results.
func (c *twoNodes) putAll(name string, list []report.ConnectionCopy, want ...report.CopyResult) {
	c.t.Helper()
	for i := range list {
		if got := c.put(list[i])[0]; got != want[i] {
			c.t.Errorf("%s: the result of copy %d is %q, want %q", name, i, got, want[i])
		}
	}
}

// checkRows checks the flags and numbers of the entries of the second node.
func (c *twoNodes) checkRows(rows int, without uint8, of report.ConnectionCopy) {
	c.t.Helper()
	found := dptest.Connections(c.t, c.two.d.collection)
	if len(found) != rows {
		c.t.Errorf("%d entries, want %d", len(found), rows)
	}
	for key, row := range found {
		if row.Flags&without != 0 {
			c.t.Errorf("entry %v has flags %#x of the earlier connection, want none of %#x", key, row.Flags, without)
		}
		if row.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) == 0 && row.SeqEnd != of.Numbers.Sent {
			c.t.Errorf("the client has sent up to %d, want %d", row.SeqEnd, of.Numbers.Sent)
		}
	}
}

func (c *twoNodes) reopened() {
	c.open(reusingClient, reusingVIP, reusingEndpoint)
	one := c.wait(2)[1]
	over := one
	over.Flags |= resetFlag
	later := successor(one, 0)
	c.putAll("reset", []report.ConnectionCopy{one, over, later, one}, report.CopyInserted, report.CopyMerged, report.CopyInserted, report.CopyMerged)
	c.checkRows(2, resetFlag, later)
}

func (c *twoNodes) halfClosed() {
	c.open(reusingClient, reusingVIP, reusingEndpoint)
	one := c.wait(2)[1]
	over := one
	over.Flags |= finClientFlag
	last := over // the ACK of the endpoint's data, which another node has seen
	last.Flags &^= finClientFlag
	last.Numbers.Acked += 100
	later := successor(one, 0)
	c.putAll("FIN", []report.ConnectionCopy{one, over, last, later}, report.CopyInserted, report.CopyMerged, report.CopyMerged, report.CopyInserted)
	c.checkRows(2, finClientFlag, later)
}

func (c *twoNodes) reopenedDSR() {
	vip := netip.MustParseAddrPort("10.0.0.6:80")
	c.run(c.one, dptest.Segment(reusingClient, vip, 0x02, 1000, 0))
	c.run(c.one, dptest.Segment(reusingClient, vip, 0x10, 1101, 5001))
	c.run(c.one, dptest.Segment(reusingClient, vip, 0x10, 1201, 5101))
	one := c.wait(2)[1]
	over := one
	over.Flags |= finClientFlag
	later := successor(one, 0)
	c.putAll("FIN", []report.ConnectionCopy{over, later}, report.CopyInserted, report.CopyInserted)
	c.checkRows(1, finClientFlag, later)
}

// usedByNext sends a packet of the next connection before its copy.
func (c *twoNodes) usedByNext() {
	c.open(reusingClient, reusingVIP, reusingEndpoint)
	one := c.wait(2)[1]
	later := successor(one, 2)
	c.putAll("before", []report.ConnectionCopy{one}, report.CopyInserted)
	c.run(c.two, dptest.Segment(reusingClient, reusingVIP, 0x10, later.Numbers.Sent, later.Numbers.Acked))
	c.putAll("after", []report.ConnectionCopy{later}, report.CopyInserted)
	c.run(c.two, dptest.Segment(reusingClient, reusingVIP, 0x10, later.Numbers.Sent, later.Numbers.Acked))
	closed := successor(later, 1)
	closed.Flags |= resetFlag
	c.putAll("another one, closed, and the earlier one", []report.ConnectionCopy{closed, one}, report.CopyOld, report.CopyOld)
	c.checkRows(2, resetFlag, c.seenBy(later))
}

// seenBy returns the copy with the numbers of the packet that passed the second node.
func (c *twoNodes) seenBy(one report.ConnectionCopy) report.ConnectionCopy {
	one.Numbers.Sent += 100 // the data of dptest.Segment
	return one
}

// sourceReused uses a source port for another client at the node that owns it, after the other node
// has missed the end of the first connection.
func (c *twoNodes) sourceReused() {
	c.open(reusingClient, netip.MustParseAddrPort("10.0.0.3:80"), reusingEndpoint)
	one := c.wait(2)[1]
	one.Idle = time.Second
	later := successor(one, 1)
	later.Client = netip.MustParseAddrPort("198.51.100.2:40001")
	earlier := later
	earlier.Client = netip.MustParseAddrPort("198.51.100.3:40001")
	earlier.Idle = time.Minute
	c.putAll("before", []report.ConnectionCopy{one, earlier, later, one}, report.CopyInserted, report.CopyConflict, report.CopyInserted, report.CopyConflict)
	c.checkRows(2, 0, later)
	c.run(c.two, dptest.Segment(later.Client, later.VIP, 0x10, later.Numbers.Sent, later.Numbers.Acked))
	used := successor(later, 1)
	used.Client = netip.MustParseAddrPort("198.51.100.4:40001")
	c.putAll("after a packet", []report.ConnectionCopy{used}, report.CopyInserted)
	c.checkRows(2, 0, used)
}

// wrapped gives the next connection lower numbers, as Linux does after 137 s or more. Its copy is
// refused until the end of the earlier connection has arrived.
func (c *twoNodes) wrapped() {
	c.open(reusingClient, reusingVIP, reusingEndpoint)
	one := c.wait(2)[1]
	one.Idle = time.Second
	c.putAll("before", []report.ConnectionCopy{one}, report.CopyInserted)
	if err := dptest.ChangeConnections(c.two.d.collection.Conntrack, func(_ bpf.TcConnectionKey, row *bpf.TcConnection) bool {
		row.Packets = 1 // as if packets had passed here
		return true
	}); err != nil {
		c.t.Fatal(err)
	}
	end, later := one, successor(one, 1)
	end.Flags, end.Late = end.Flags|resetFlag, true
	later.Numbers.Sent, later.Numbers.ReplySent = one.Numbers.Sent-1<<30, one.Numbers.ReplySent-1<<30
	c.putAll("after", []report.ConnectionCopy{later, end, later}, report.CopyOld, report.CopyMerged, report.CopyInserted)
	c.checkRows(2, resetFlag, later)
}
