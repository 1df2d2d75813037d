package datapath

import (
	"net/netip"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// numbersAhead is how much higher the sequence numbers of the next connection of a port are: what
// the clock of RFC 6528 adds in a second.
const numbersAhead = 1_000_000 * 16

// TestCopiesOfReusedPorts checks that a node that has missed the end of a connection takes the next
// one of the same client's port, and of the same source port.
func TestCopiesOfReusedPorts(t *testing.T) {
	t.Parallel()
	c := newCopied(t, tcpCopies,
		"10.0.0.3:80/tcp mode=fullnat snat=10.9.9.9 endpoints=192.0.2.1:8080",
		"10.0.0.6:80/tcp mode=dsr endpoints=192.0.2.1:80")
	c.sub(t, "closed, same generation", c.reopened)
	c.sub(t, "closed by one side, same generation", c.halfClosed)
	c.sub(t, "dsr, same generation", c.reopenedDSR)
	c.sub(t, "used by packets of the next connection", c.usedByNext)
	c.sub(t, "source port", c.sourceReused)
	c.sub(t, "numbers that have wrapped around", c.wrapped)
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
func (c *copied) putAll(name string, list []report.ConnectionCopy, want ...report.CopyResult) {
	c.t.Helper()
	for i := range list {
		if got := c.put(list[i])[0]; got != want[i] {
			c.t.Errorf("%s: the result of copy %d is %q, want %q", name, i, got, want[i])
		}
	}
}

// checkRows checks the flags and numbers of the entries of the second node.
func (c *copied) checkRows(rows int, without uint8, of report.ConnectionCopy) {
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

func (c *copied) reopened() {
	c.open(reusingClient, reusingVIP, reusingEndpoint)
	one := c.wait(2)[1]
	over := one
	over.Flags |= resetFlag
	later := successor(one, 0)
	c.putAll("reset", []report.ConnectionCopy{one, over, later, one}, report.CopyInserted, report.CopyMerged, report.CopyInserted, report.CopyMerged)
	c.checkRows(2, resetFlag, later)
}

func (c *copied) halfClosed() {
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

func (c *copied) reopenedDSR() {
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

// usedByNext has a packet of the next connection arrive before its copy.
func (c *copied) usedByNext() {
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

// seenBy returns the copy with the numbers of the packet that the second node has seen.
func (c *copied) seenBy(one report.ConnectionCopy) report.ConnectionCopy {
	one.Numbers.Sent += 100 // the data of dptest.Segment
	return one
}

// sourceReused has the node that owns a source port use it for another client, once this node has
// missed the end of the first one.
func (c *copied) sourceReused() {
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

// wrapped has the numbers of the next connection be lower, as after 137 s or more of the clock of
// Linux: it is refused until the end of the earlier one has arrived.
func (c *copied) wrapped() {
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
