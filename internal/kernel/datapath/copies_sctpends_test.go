package datapath

import (
	"net/netip"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// TestCopiesSCTPEnds checks that an ended association stays ended when a copy completes its tags,
// and that the end of an earlier association does not end that of a client that has restarted.
func TestCopiesSCTPEnds(t *testing.T) {
	t.Parallel()
	const client, vip, endpoint = "198.51.100.1:40000", "10.0.0.1:2020", "192.0.2.1:5001"
	c := newTwoNodes(t, "10.0.0.1:2020/sctp endpoints=192.0.2.1:5001")
	opened := c.openSCTP(client, vip, endpoint)
	put := func(tag, replyTag uint32, flags uint8, idle time.Duration, want report.CopyResult) {
		t.Helper()
		if err := dptest.AgeConnections(c.two.d.collection.Conntrack, c.two.d.collection.Jiffies(time.Second)); err != nil {
			t.Fatal(err)
		}
		one := opened
		one.Numbers.Acked, one.Numbers.ReplyAcked, one.Flags, one.Idle = tag, replyTag, one.Flags|flags, idle
		if got := c.put(one)[0]; got != want {
			t.Errorf("a copy with the tags %d and %d: %v, want %v", tag, replyTag, got, want)
		}
	}
	check := func(what string, tags [2]uint32, ended bool) {
		t.Helper()
		if got := c.tagsAt(c.two, client); got != tags {
			t.Errorf("%s, the tags are %d, want %d", what, got, tags)
		}
		for key, row := range dptest.Connections(t, c.two.d.collection) {
			if row.Flags&uint8(bpf.TcConnectionFlagCONN_RESET) != 0 != ended {
				t.Errorf("%s, flags are %#x of %v, ended: want %t", what, row.Flags, key, ended)
			}
		}
	}
	put(222, 0, 0, 0, report.CopyInserted)
	c.sctp(c.two, client, vip, "tag 222 chunks abort")
	put(0, 111, 0, 0, report.CopyMerged)
	check("after an ABORT before the copy of COOKIE ACK", [2]uint32{222, 111}, true)
	put(444, 333, 0, 0, report.CopyMerged)
	check("after a restart", [2]uint32{444, 333}, false)
	for _, tags := range [][2]uint32{{222, 111}, {222, 0}, {0, 111}} {
		put(tags[0], tags[1], resetFlag, time.Minute, report.CopyOld)
		check("after the end of the earlier association", [2]uint32{444, 333}, false)
	}
	put(444, 333, resetFlag, time.Minute, report.CopyMerged)
	check("after the end of this association", [2]uint32{444, 333}, true)
}

// TestCopiesSCTPForgedINIT checks that the copy of an association replaces a forged INIT at another
// node, and that the copy of a forged INIT never replaces an association: neither that of its
// client, nor one whose replies have the same ports.
func TestCopiesSCTPForgedINIT(t *testing.T) {
	t.Parallel()
	const client, vip, source, endpoint = "198.51.100.1:40000", "10.0.0.1:2020", "10.0.0.1:40000", "192.0.2.1:5001"
	c := newTwoNodes(t, "10.0.0.1:2020/sctp mode=fullnat endpoints=192.0.2.1:5001")
	c.sctp(c.one, client, vip, "chunks init=111")
	c.sctp(c.one, endpoint, source, "tag 111 chunks init-ack=222:40")
	c.sctp(c.one, client, vip, "tag 222 chunks cookie-echo:40")
	list := c.wait(2)
	forged, opened := list[0], list[1]
	forged.Generation++
	forged.Numbers.Acked, forged.Numbers.ReplyAcked = 998, 999
	other := forged
	other.Client = netip.MustParseAddrPort("198.51.100.2:40000")
	put := func(one report.ConnectionCopy, want report.CopyResult, tags [2]uint32) {
		t.Helper()
		if got := c.put(one)[0]; got != want {
			t.Errorf("the copy of %s with the flags %#x: %v, want %v", one.Client, one.Flags, got, want)
		}
		if got := c.tagsAt(c.two, client); got != tags {
			t.Errorf("the tags are %d, want %d", got, tags)
		}
		if err := dptest.AgeConnections(c.two.d.collection.Conntrack, c.two.d.collection.Jiffies(time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	put(forged, report.CopyInserted, [2]uint32{998, 999})
	c.sctp(c.two, client, vip, "chunks init=999")
	opened.Idle = time.Minute
	ended := opened
	ended.Flags |= resetFlag
	put(ended, report.CopyOld, [2]uint32{998, 999})
	put(opened, report.CopyInserted, [2]uint32{222, 111})
	forged.Idle, other.Idle = 0, 0
	put(forged, report.CopyOld, [2]uint32{222, 111})
	put(other, report.CopyConflict, [2]uint32{222, 111})
	forged.Flags = opened.Flags // its client has answered
	put(forged, report.CopyInserted, [2]uint32{998, 999})
}

// TestCopiesSCTPAnsweredElsewhere checks that a client whose INIT has remained unanswered at a
// node, and was answered through another one, can send COOKIE ECHO through the first: that node
// accepts the copy of INIT ACK, and afterwards none of a forged INIT.
func TestCopiesSCTPAnsweredElsewhere(t *testing.T) {
	t.Parallel()
	const client, vip, endpoint = "198.51.100.1:40000", "10.0.0.1:2020", "192.0.2.1:5001"
	c := newTwoNodes(t, vip+"/sctp endpoints="+endpoint)
	c.sctp(c.two, client, vip, "chunks init=110")
	c.sctp(c.one, client, vip, "chunks init=111")
	c.sctp(c.one, endpoint, client, "tag 111 chunks init-ack=222:40")
	answered := c.wait(1)[0]
	for _, row := range dptest.Connections(t, c.two.d.collection) {
		answered.Generation = row.Generation + 1
	}
	forged := answered
	forged.Generation++
	forged.Numbers.Acked, forged.Numbers.ReplyAcked = 998, 999
	for i, one := range []report.ConnectionCopy{answered, forged} {
		if err := dptest.AgeConnections(c.two.d.collection.Conntrack, c.two.d.collection.Jiffies(time.Second)); err != nil {
			t.Fatal(err)
		}
		one.Idle = 0
		if got, want := c.put(one)[0], [...]report.CopyResult{report.CopyInserted, report.CopyOld}[i]; got != want {
			t.Errorf("copy %d of INIT ACK: %v, want %v", i, got, want)
		}
	}
	c.sctp(c.two, client, vip, "tag 222 chunks cookie-echo:40")
	if got := c.tagsAt(c.two, client); got != [2]uint32{222, 111} {
		t.Errorf("the tags are %d, want 222 and 111", got)
	}
	for key, row := range dptest.Connections(t, c.two.d.collection) {
		if row.Flags&uint8(bpf.TcConnectionFlagCONN_ASSURED) == 0 {
			t.Errorf("COOKIE ECHO has not assured %v", key)
		}
	}
}

// TestCopiesSCTPForgedPort checks that the copy of an association replaces a half-open association
// to another VIP whose replies have the same ports: anyone can forge INITs there with the client's
// address.
func TestCopiesSCTPForgedPort(t *testing.T) {
	t.Parallel()
	const client, vip, other, endpoint = "198.51.100.1:40000", "10.0.0.1:2020", "10.0.0.2:2020", "192.0.2.1:5001"
	c := newTwoNodes(t, vip+"/sctp endpoints="+endpoint, other+"/sctp endpoints="+endpoint)
	c.sctp(c.one, client, vip, "chunks init=111")
	c.sctp(c.one, endpoint, client, "tag 111 chunks init-ack=222:40")
	c.sctp(c.one, client, vip, "tag 222 chunks cookie-echo:40")
	list := c.wait(2)
	announced, opened := list[0], list[1]
	announced.Idle, opened.Idle = time.Minute, time.Minute
	ended := opened
	ended.Flags |= resetFlag
	c.sctp(c.two, client, other, "chunks init=999")
	for _, one := range []struct {
		name string
		copy report.ConnectionCopy
		want report.CopyResult
		half uint64
	}{
		{"INIT ACK", announced, report.CopyConflict, 1},
		{"ABORT", ended, report.CopyConflict, 1},
		{"COOKIE ECHO", opened, report.CopyInserted, 0},
	} {
		if got := c.put(one.copy)[0]; got != one.want {
			t.Errorf("the copy of %s: %v, want %v", one.name, got, one.want)
		}
		if n := halfOpens(t, c.two.d)[bpf.TcHalfOpenClassHALF_OPEN_OTHERS]; uint64(n) != one.half {
			t.Errorf("after the copy of %s, %d associations are half-open, want %d", one.name, n, one.half)
		}
	}
	if n := len(dptest.Connections(t, c.two.d.collection)); n != 2 {
		t.Errorf("%d entries, want 2 of one association", n)
	}
}

// TestCopiesSCTPRepeated checks that a client that repeats its COOKIE ECHO sends no further copies.
func TestCopiesSCTPRepeated(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, "10.0.0.1:2020/sctp endpoints=192.0.2.1:5001")
	for _, client := range []string{"198.51.100.1:40000", "198.51.100.2:40000"} {
		c.sctp(c.one, client, "10.0.0.1:2020", "chunks init=111")
		c.sctp(c.one, "192.0.2.1:5001", client, "tag 111 chunks init-ack=222:40")
		for range 10 {
			c.sctp(c.one, client, "10.0.0.1:2020", "tag 222 chunks cookie-echo:40")
			c.sctp(c.one, "192.0.2.1:5001", client, "tag 111 chunks cookie-ack")
		}
	}
	if list := c.wait(6); len(list) != 6 || list[3].Client != netip.MustParseAddrPort("198.51.100.2:40000") {
		t.Errorf("%d copies of two associations, want 3 of each", len(list))
	}
}

// TestCopiesSCTPEchoAgain checks that a node accepts both tags if the INIT ACK of the client's
// association was not the first one there, and its COOKIE ECHO came only after the copy.
func TestCopiesSCTPEchoAgain(t *testing.T) {
	t.Parallel()
	const client, vip, endpoint = "198.51.100.1:40000", "10.0.0.1:2020", "192.0.2.1:5001"
	c := newTwoNodes(t, "10.0.0.1:2020/sctp endpoints=192.0.2.1:5001")
	c.sctp(c.one, client, vip, "chunks init=999")
	c.sctp(c.one, endpoint, client, "tag 999 chunks init-ack=998:40")
	c.put(c.wait(1)...)
	for _, o := range []*opener{c.one, c.two} {
		c.sctp(o, client, vip, "chunks init=111")
		c.sctp(o, endpoint, client, "tag 111 chunks init-ack=222:40")
	}
	c.sctp(c.one, client, vip, "tag 222 chunks cookie-echo:40")
	c.sctp(c.one, endpoint, client, "tag 111 chunks cookie-ack")
	c.put(c.wait(3)[2])
	c.sctp(c.two, client, vip, "tag 222 chunks cookie-echo:40")
	if got := c.tagsAt(c.two, client); got != [2]uint32{222, 111} {
		t.Errorf("the tags are %d, want 222 and 111", got)
	}
}
