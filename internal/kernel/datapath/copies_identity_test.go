package datapath

import (
	"net/netip"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// TestCopiesIdentity checks which copies are merged into an entry with the same client's port,
// which ones replace it as a later connection, and which ones belong to an earlier connection.
func TestCopiesIdentity(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, tcpCopies)
	const finEndpoint = uint8(bpf.TcConnectionFlagCONN_FIN_ENDPOINT)
	for _, step := range []struct {
		name   string
		events uint8                            // of the entry
		used   bool                             // packets have passed here
		age    time.Duration                    // of the entry
		change func(one *report.ConnectionCopy) // the copy that arrives then
		want   report.CopyResult
	}{
		{name: "the ACK of the endpoint's FIN", events: finClientFlag, want: report.CopyMerged, change: func(one *report.ConnectionCopy) { one.Numbers.Sent++ }},
		{name: "the client continues", events: finClientFlag, want: report.CopyInserted, change: func(one *report.ConnectionCopy) { one.Numbers.Sent += 2 }},
		{name: "a FIN after data that has not passed here", events: finClientFlag, want: report.CopyMerged, change: func(one *report.ConnectionCopy) {
			one.Numbers.Sent += 100
			one.Flags |= finClientFlag
		}},
		{name: "an RST after data that has not passed here", events: finClientFlag, want: report.CopyMerged, change: func(one *report.ConnectionCopy) {
			one.Numbers.Sent += 100
			one.Flags |= resetFlag
		}},
		{name: "the ACK of the client's FIN", events: finEndpoint, want: report.CopyMerged, change: func(one *report.ConnectionCopy) { one.Numbers.ReplySent++ }},
		{name: "the endpoint continues", events: finEndpoint, want: report.CopyInserted, change: func(one *report.ConnectionCopy) { one.Numbers.ReplySent += 2 }},
		{name: "the next generation, lower numbers", want: report.CopyInserted, change: func(one *report.ConnectionCopy) {
			one.Numbers.Sent -= 100
			one.Generation++
		}},
		{name: "the next generation, lower numbers, and packets have passed", used: true, want: report.CopyOld, change: func(one *report.ConnectionCopy) {
			one.Numbers.Sent -= 100
			one.Generation++
		}},
		{name: "the next generation, lower numbers, and the entry has expired", used: true, age: 3 * time.Hour, want: report.CopyInserted, change: func(one *report.ConnectionCopy) {
			one.Numbers.Sent -= 100
			one.Generation++
		}},
	} {
		c.subtest(t, step.name, func() {
			c.open(reusingClient, reusingVIP, reusingEndpoint)
			one := c.wait(2)[1]
			before, next := one, one
			before.Flags |= step.events
			c.putAll("before", []report.ConnectionCopy{before}, report.CopyInserted)
			if step.used {
				c.routed(func() []byte {
					return c.run(c.two, dptest.Segment(reusingClient, reusingVIP, 0x10, one.Numbers.Sent, one.Numbers.Acked))
				})
			}
			if err := dptest.AgeConnections(c.two.d.collection.Conntrack, c.two.d.collection.Jiffies(step.age+time.Second)); err != nil {
				c.t.Fatal(err)
			}
			next.Idle = 0
			step.change(&next)
			c.putAll("after", []report.ConnectionCopy{next}, step.want)
		})
	}
}

// TestCopiesMerge checks that two copies of a connection, in any order, leave the later times and
// numbers of both directions.
func TestCopiesMerge(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, tcpCopies)
	client, vip := netip.MustParseAddrPort("198.51.100.1:40000"), netip.MustParseAddrPort("10.0.0.1:80")
	c.open(client, vip, netip.MustParseAddrPort("192.0.2.1:8080"))
	first := c.wait(2)[1]
	first.Idle = time.Minute
	later := first
	later.Idle = 10 * time.Second
	later.Numbers = report.TCPNumbers{Sent: first.Numbers.Sent + 1, Acked: first.Numbers.Acked + 2, ReplySent: first.Numbers.ReplySent + 3, ReplyAcked: first.Numbers.ReplyAcked + 4}
	c.putAll("first", []report.ConnectionCopy{first}, report.CopyInserted)
	before := dptest.Connections(t, c.two.d.collection)
	c.putAll("later, and earlier", []report.ConnectionCopy{later, first}, report.CopyMerged, report.CopyMerged)
	after := dptest.Connections(t, c.two.d.collection)
	if len(after) != 2 {
		t.Errorf("%d entries, want 2", len(after))
	}
	for key, row := range after {
		sent, acked := later.Numbers.Sent, later.Numbers.Acked
		if row.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) != 0 {
			sent, acked = later.Numbers.ReplySent, later.Numbers.ReplyAcked
		}
		if row.SeqEnd != sent || row.Ack != acked {
			t.Errorf("%v: the numbers %d and %d, want %d and %d", key, row.SeqEnd, row.Ack, sent, acked)
		}
		least, most := c.two.d.collection.Jiffies(50*time.Second), c.two.d.collection.Jiffies(90*time.Second)
		if used := row.Seen - before[key].Seen; used < least || used > most {
			t.Errorf("%v: used %d jiffies later, want %d", key, used, least)
		}
	}
}

// TestCopiesUsed checks that a connection is in use while packets of either direction pass: its age
// is that of the last packet, and a late end does not close it.
func TestCopiesUsed(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, tcpCopies)
	for name, frame := range map[string][]byte{
		"client":   dptest.Segment(reusingClient, reusingVIP, 0x10, 1101, 5101),
		"endpoint": dptest.Segment(reusingEndpoint, reusingClient, 0x10, 5101, 1101),
	} {
		c.subtest(t, name, func() {
			c.open(reusingClient, reusingVIP, reusingEndpoint)
			one := c.wait(2)[1]
			one.Idle = time.Minute
			end := one
			end.Late, end.Flags = true, end.Flags|resetFlag
			end.Numbers.Sent, end.Numbers.ReplySent = end.Numbers.Sent+1<<22, end.Numbers.ReplySent+1<<22
			c.putAll("before", []report.ConnectionCopy{one}, report.CopyInserted)
			c.run(c.two, frame)
			if found := c.scan(c.two); len(found) != 1 || found[0].Idle > one.Idle/2 {
				c.t.Errorf("the scan finds %+v, want a connection that is in use", found)
			}
			c.putAll("after", []report.ConnectionCopy{end}, report.CopyOld)
		})
	}
}

// TestCopiesBusy checks that copies wait while another CPU removes the connection, or has begun the
// next one in its client's entry only.
func TestCopiesBusy(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(row *bpf.TcConnection, isReply bool) bool{
		"removed": func(row *bpf.TcConnection, _ bool) bool {
			row.Traits |= uint8(bpf.TcConnectionTraitCONN_ENDED)
			return true
		},
		"succeeded": func(row *bpf.TcConnection, isReply bool) bool {
			if isReply {
				row.Generation--
			}
			return isReply
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newTwoNodes(t, tcpCopies)
			c.open(reusingClient, reusingVIP, reusingEndpoint)
			one := c.wait(2)[1]
			c.putAll("before", []report.ConnectionCopy{one}, report.CopyInserted)
			err := dptest.ChangeConnections(c.two.d.collection.Conntrack, func(_ bpf.TcConnectionKey, row *bpf.TcConnection) bool {
				return edit(row, row.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) != 0)
			})
			if err != nil {
				t.Fatal(err)
			}
			late := one
			late.Generation++
			late.Late = true
			c.putAll("meanwhile", []report.ConnectionCopy{one, late}, report.CopyBusy, report.CopyBusy)
		})
	}
}

// TestCopiesConflict checks that no copy ends a connection whose replies have the addresses of the
// copy's client and VIP: an endpoint is a client, and a client's address is a VIP.
func TestCopiesConflict(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, tcpCopies, "198.51.100.1:40000/tcp endpoints=192.0.2.2:8080")
	c.open(reusingClient, reusingVIP, reusingEndpoint)
	one := c.wait(2)[1]
	one.Idle = time.Minute
	other := one
	other.Client, other.Source, other.VIP = reusingEndpoint, reusingEndpoint, reusingClient
	other.Endpoint, other.Idle = netip.MustParseAddrPort("192.0.2.2:8080"), 0
	c.putAll("both", []report.ConnectionCopy{one, other}, report.CopyInserted, report.CopyConflict)
	c.checkRows(2, 0, one)
}
