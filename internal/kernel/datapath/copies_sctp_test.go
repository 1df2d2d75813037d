package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/internal/pkt"
	"loxilb/test/dptest"
	"loxilb/test/netnstest/labtest"
)

// sctp runs the program of a node on an SCTP packet, and returns the frame afterwards.
func (c *twoNodes) sctp(o *opener, from, to, words string) []byte {
	c.t.Helper()
	p, err := pkt.Parse(fmt.Sprintf("sctp %s > %s %s", from, to, words))
	if err != nil {
		c.t.Fatal(err)
	}
	frame := p.Build()
	clear(frame[:12]) // the MAC address of lo
	return c.run(o, frame)
}

// openSCTP opens an association at the first node, with the tags 222 to the endpoint and 111 to the
// client. It returns the copy of COOKIE ACK.
func (c *twoNodes) openSCTP(client, vip, endpoint string) report.ConnectionCopy {
	c.t.Helper()
	c.sctp(c.one, client, vip, "chunks init=111")
	c.sctp(c.one, endpoint, client, "tag 111 chunks init-ack=222:40")
	c.sctp(c.one, client, vip, "tag 222 chunks cookie-echo:40")
	c.sctp(c.one, endpoint, client, "tag 111 chunks cookie-ack")
	return c.wait(3)[2]
}

// answered is sctp in a network with routes, which answers and endpoints need.
func (c *twoNodes) answered(o *opener, from, to, words string) []byte {
	c.t.Helper()
	return c.routed(func() []byte { return c.sctp(o, from, to, words) })
}

// routed calls run in a network with routes. Elsewhere, packets are not forwarded, nor counted.
func (c *twoNodes) routed(run func() []byte) (out []byte) {
	c.t.Helper()
	h, err := labtest.New(c.t).Host("routed")
	if err == nil {
		_, err = h.Run("sh", "-c", "ip route add default dev lo && sysctl -q -w net.ipv4.ip_forward=1")
	}
	if err == nil {
		err = h.Do(func() error { out = run(); return nil })
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// paths counts the paths of associations that the second node knows.
func (c *twoNodes) paths() (n int) {
	c.t.Helper()
	var (
		key  bpf.TcSctpPathKey
		path bpf.TcSctpPath
	)
	rows := c.two.d.collection.SCTPPaths.Table().Iterate()
	for rows.Next(&key, &path) {
		n++
	}
	if err := rows.Err(); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// TestCopiesSCTP checks that an association continues through another node, also after the client
// has restarted: that node accepts its tags, and no forged ones. Packets on another path of a
// service with several VIPs belong to it once the client has answered a HEARTBEAT there.
func TestCopiesSCTP(t *testing.T) {
	t.Parallel()
	const client, vip, endpoint = "198.51.100.1:40000", "10.0.0.1:2020", "192.0.2.1:5001"
	c := newTwoNodes(t, "10.0.0.1:2020/sctp secips=10.0.1.1 endpoints=192.0.2.1:5001")
	shake := func(tag, answer int) {
		c.sctp(c.one, client, vip, fmt.Sprintf("chunks init=%d", tag))
		c.sctp(c.one, endpoint, client, fmt.Sprintf("tag %d chunks init-ack=%d:40", tag, answer))
		c.sctp(c.one, client, vip, fmt.Sprintf("tag %d chunks cookie-echo:40", answer))
		c.sctp(c.one, endpoint, client, fmt.Sprintf("tag %d chunks cookie-ack", tag))
	}
	shake(111, 222)
	var results []report.CopyResult
	for _, one := range c.wait(3) {
		if one.Protocol != lb.SCTP || one.Numbers.Acked != 222 || one.Numbers.ReplyAcked != 111 {
			t.Errorf("a copy of another association: %+v", one)
		}
		results = append(results, c.put(one)...)
	}
	if results[0] != report.CopyInserted || results[2] != report.CopyMerged {
		t.Errorf("results of copies: %v", results)
	}
	c.wantSame()
	packets := func() (n uint64) {
		for _, row := range dptest.Connections(t, c.two.d.collection) {
			n += row.Packets
		}
		return n
	}
	before := packets()
	const further, otherVIP = "198.51.100.7:40000", "10.0.1.1:2020"
	c.sctp(c.two, further, otherVIP, "tag 5 chunks data:100")
	if packets() != before {
		t.Error("a packet with another tag belongs to the association")
	}
	heartbeat := c.answered(c.two, further, otherVIP, "tag 222 chunks data:100")
	if packets() != before {
		t.Error("a packet from an address without proof belongs to the association")
	}
	const chunks = 14 + 20 + 12 // Ethernet, IPv4, and the common header of SCTP
	c.sctp(c.two, further, otherVIP, fmt.Sprintf("tag 222 data 05%x", heartbeat[chunks+1:]))
	c.answered(c.two, further, otherVIP, "tag 222 chunks data:100")
	if n := packets() - before; n != 1 {
		t.Errorf("after the proof, %d packets belong to the association, want 1", n)
	}
	c.sctp(c.two, client, vip, "tag 5 chunks abort")

	c.sctp(c.two, endpoint, client, "tag 111 chunks shutdown:4") // of the earlier association only
	// The copy with the later packet decides the tags, and no client restarts within a tick.
	if err := dptest.AgeConnections(c.two.d.collection.Conntrack, c.two.d.collection.Jiffies(time.Second)); err != nil {
		t.Fatal(err)
	}
	shake(333, 444)
	list := c.wait(5) // its COOKIE ECHO and COOKIE ACK
	for _, one := range list[3:] {
		one.Idle = 0
		c.put(one)
	}
	c.wantSame()
	c.sctp(c.two, client, vip, "tag 222 chunks abort")
	c.wantSame()
	end := list[len(list)-1]
	end.Late, end.Flags = true, end.Flags|report.FlagReset
	endpoints, clients := end, end // with another tag of one side
	endpoints.Numbers.Acked, clients.Numbers.ReplyAcked = 223, 111
	paths := c.paths()
	if got := c.put(endpoints, clients, end); !slices.Equal(got, []report.CopyResult{report.CopyOld, report.CopyOld, report.CopyMerged}) {
		t.Errorf("late ends of associations before restarts, and of this one: %v", got)
	}
	if n := c.paths(); n != paths {
		t.Errorf("late ends have added %d paths", n-paths)
	}
	c.sctp(c.two, client, vip, "tag 444 chunks abort")
	for key, row := range dptest.Connections(t, c.two.d.collection) {
		if row.Flags&uint8(bpf.TcConnectionFlagCONN_RESET) == 0 {
			t.Errorf("the association continues after an ABORT: %v", key)
		}
	}
}

// TestCopiesSCTPUnknownTag checks an association whose client's tag is unknown at the node that has
// seen COOKIE ACK. It accepts the tag from the node that has seen COOKIE ECHO, but not from a node
// that has seen neither: the INIT there may be forged, or the client may have used another INIT
// ACK.
func TestCopiesSCTPUnknownTag(t *testing.T) {
	t.Parallel()
	const client, vip, endpoint = "198.51.100.1:40000", "10.0.0.1:2020", "192.0.2.1:5001"
	c := newTwoNodes(t, "10.0.0.1:2020/sctp endpoints=192.0.2.1:5001")
	c.sctp(c.one, client, vip, "chunks init=111")
	c.sctp(c.one, endpoint, client, "tag 111 chunks init-ack=222:40")
	announced := c.wait(1)[0]
	forged := announced
	forged.Numbers.ReplyAcked, forged.Numbers.Acked = 777, 776
	if got := c.put(forged); got[0] != report.CopyInserted {
		t.Fatalf("a copy without entry: %v", got)
	}
	others := bpf.TcHalfOpenClassHALF_OPEN_OTHERS
	if n := halfOpens(t, c.two.d)[others]; n != 1 {
		t.Errorf("before COOKIE ACK, %d associations are half-open, want 1", n)
	}
	c.sctp(c.two, endpoint, client, "tag 111 chunks cookie-ack")
	c.sctp(c.two, endpoint, client, "tag 111 chunks cookie-ack")
	if n := halfOpens(t, c.two.d)[others]; n != 0 {
		t.Errorf("after COOKIE ACK, %d associations are half-open, want none", n)
	}
	if got := c.tagsAt(c.two, client); got != [2]uint32{0, 111} {
		t.Errorf("after COOKIE ACK, the tags are %d, want an unknown one and 111", got)
	}
	if err := dptest.AgeConnections(c.two.d.collection.Conntrack, c.two.d.collection.Jiffies(time.Second)); err != nil {
		t.Fatal(err)
	}
	forged.Idle = 0
	c.put(forged)
	announced.Idle = 0
	c.put(announced)
	if got := c.tagsAt(c.two, client); got != [2]uint32{0, 111} {
		t.Errorf("after the copies of two INITs, the tags are %d, want an unknown one and 111", got)
	}
	echoed := announced
	echoed.Flags |= uint8(bpf.TcConnectionFlagCONN_ASSURED)
	echoed.Idle = time.Hour
	c.put(echoed)
	if got := c.tagsAt(c.two, client); got != [2]uint32{222, 111} {
		t.Errorf("after the copy of COOKIE ECHO, the tags are %d, want 222 and 111", got)
	}
	const second = "198.51.100.1:40001" // an INIT is forged at the second node
	c.sctp(c.two, second, vip, "chunks init=111")
	c.sctp(c.two, second, vip, "chunks init=999")
	announced.Client, announced.Idle = netip.MustParseAddrPort(second), time.Hour
	announced.Source = announced.Client
	c.put(announced)
	if got := c.tagsAt(c.two, second); got != [2]uint32{222, 111} {
		t.Errorf("after the copy of INIT ACK, the tags are %d, want 222 and 111", got)
	}
}

// TestCopiesSCTPForgedTags checks that the copy of an association decides the tags of a half-open
// entry, whatever packets the entry has seen: INITs and other packets may have been forged at its
// node, or the client may have used another INIT ACK than that node saw.
func TestCopiesSCTPForgedTags(t *testing.T) {
	t.Parallel()
	const client, vip, endpoint = "198.51.100.1:40000", "10.0.0.1:2020", "192.0.2.1:5001"
	for _, one := range []struct {
		name      string
		init, ack int // the first ones, which both nodes know
		echo      int // the tag of COOKIE ECHO at the first node
		copies    int // the last one is of COOKIE ACK
		want      [2]uint32
	}{
		{"forged INIT", 999, 998, 222, 3, [2]uint32{222, 111}},
		{"unknown tag", 111, 221, 223, 2, [2]uint32{0, 111}},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			c := newTwoNodes(t, "10.0.0.1:2020/sctp endpoints=192.0.2.1:5001")
			c.sctp(c.one, client, vip, fmt.Sprintf("chunks init=%d", one.init))
			c.sctp(c.one, endpoint, client, fmt.Sprintf("tag %d chunks init-ack=%d:40", one.init, one.ack))
			c.put(c.wait(1)...)
			c.sctp(c.one, client, vip, "chunks init=111")
			c.sctp(c.one, endpoint, client, "tag 111 chunks init-ack=222:40")
			c.sctp(c.one, client, vip, fmt.Sprintf("tag %d chunks cookie-echo:40", one.echo))
			c.sctp(c.one, endpoint, client, "tag 111 chunks cookie-ack")
			list := c.wait(one.copies)
			opened := list[len(list)-1]
			c.sctp(c.two, client, vip, "tag 5 chunks data:4")
			opened.Idle = time.Second
			c.put(opened)
			if got := c.tagsAt(c.two, client); got != one.want {
				t.Errorf("the tags are %d, want %d", got, one.want)
			}
			c.sctp(c.two, client, vip, "tag 999 chunks abort+t")
			for key, row := range dptest.Connections(t, c.two.d.collection) {
				if row.Flags&uint8(bpf.TcConnectionFlagCONN_RESET) != 0 {
					t.Errorf("a forged ABORT has ended %v", key)
				}
			}
			// the client has restarted at the first node, and then sent ABORT
			ended := opened
			ended.Idle, ended.Flags = 0, ended.Flags|report.FlagReset
			ended.Numbers.Acked, ended.Numbers.ReplyAcked = 444, 333
			if err := dptest.AgeConnections(c.two.d.collection.Conntrack, c.two.d.collection.Jiffies(time.Second)); err != nil {
				t.Fatal(err)
			}
			c.put(ended)
			for key, row := range dptest.Connections(t, c.two.d.collection) {
				if row.Flags&uint8(bpf.TcConnectionFlagCONN_RESET) == 0 {
					t.Errorf("the ABORT of the restarted association has not ended %v", key)
				}
			}
		})
	}
}

// tagsAt returns the verification tags of a client's association at a node: of packets to the
// endpoint, and to the client.
func (c *twoNodes) tagsAt(o *opener, client string) (tags [2]uint32) {
	want := netip.MustParseAddrPort(client)
	for key, row := range dptest.Connections(c.t, o.d.collection) {
		if row.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) == 0 {
			if bpf.AddrPort(key.Saddr, key.Sport) == want {
				tags[0] = row.Ack
			}
		} else if bpf.AddrPort(row.Daddr, row.Dport) == want {
			tags[1] = row.Ack
		}
	}
	return tags
}

// A restartedCopy is a client's association at the second node that the client has restarted
// through other nodes.
type restartedCopy struct {
	c                     *twoNodes
	client, vip, endpoint string
	opened                report.ConnectionCopy
}

// put inserts the copy of a later packet, with tags of packets to the endpoint and to the client.
func (r *restartedCopy) put(tag, replyTag uint32) {
	if err := dptest.AgeConnections(r.c.two.d.collection.Conntrack, r.c.two.d.collection.Jiffies(time.Second)); err != nil {
		r.c.t.Fatal(err)
	}
	r.merge(tag, replyTag, 0)
}

// late inserts the copy of an earlier packet.
func (r *restartedCopy) late(tag, replyTag uint32) { r.merge(tag, replyTag, time.Hour) }

func (r *restartedCopy) merge(tag, replyTag uint32, idle time.Duration) {
	one := r.opened
	one.Idle, one.Numbers.Acked, one.Numbers.ReplyAcked = idle, tag, replyTag
	r.c.put(one)
}

// ack sends COOKIE ACK through the second node.
func (r *restartedCopy) ack() { r.c.sctp(r.c.two, r.endpoint, r.client, "tag 333 chunks cookie-ack") }

// TestCopiesSCTPRestart checks that both tags count at a node if one node has seen the COOKIE ECHO
// of a client's restart, and another one its COOKIE ACK, in any order, whatever late copies of
// earlier associations arrive.
func TestCopiesSCTPRestart(t *testing.T) {
	t.Parallel()
	const client, vip, endpoint = "198.51.100.1:40000", "10.0.0.1:2020", "192.0.2.1:5001"
	c := newTwoNodes(t, "10.0.0.1:2020/sctp endpoints=192.0.2.1:5001")
	opened := c.openSCTP(client, vip, endpoint)
	cases := []struct {
		name  string
		steps func(r *restartedCopy)
	}{
		{"COOKIE ACK first", func(r *restartedCopy) { r.ack(); r.put(444, 0) }},
		{"COOKIE ECHO first", func(r *restartedCopy) { r.put(444, 0); r.ack() }},
		{"both elsewhere", func(r *restartedCopy) { r.put(444, 0); r.put(0, 333) }},
		{"both elsewhere, COOKIE ACK first", func(r *restartedCopy) { r.put(0, 333); r.put(444, 0) }},
		{"COOKIE ECHO again", func(r *restartedCopy) { r.put(444, 0); r.ack(); r.put(444, 0) }},
		{"all of it at the other node", func(r *restartedCopy) { r.put(444, 333) }},
		{"late COOKIE ECHO", func(r *restartedCopy) { r.ack(); r.late(444, 0) }},
		{"late COOKIE ACK", func(r *restartedCopy) { r.put(444, 0); r.late(0, 333) }},
		{"late copy of the association before", func(r *restartedCopy) { r.put(444, 333); r.late(222, 111) }},
		{"... before COOKIE ACK", func(r *restartedCopy) { r.put(444, 0); r.late(222, 111); r.ack() }},
		{"COOKIE ECHOs of two restarts", func(r *restartedCopy) { r.put(443, 0); r.put(444, 0); r.ack() }},
		{"late COOKIE ECHO of the restart before", func(r *restartedCopy) { r.put(444, 0); r.late(443, 0); r.ack() }},
		{"after ABORT at this node", func(r *restartedCopy) {
			r.c.sctp(r.c.two, r.client, r.vip, "tag 222 chunks abort")
			r.put(444, 333)
		}},
	}
	for i, one := range cases {
		r := restartedCopy{c, fmt.Sprintf("198.51.100.1:%d", 40001+i), vip, endpoint, opened}
		r.opened.Client = netip.MustParseAddrPort(r.client)
		r.opened.Source = r.opened.Client
		c.put(r.opened)
		if got := c.tagsAt(c.two, r.client); got != [2]uint32{222, 111} {
			t.Fatalf("%s: before the restart, the tags are %d, want 222 and 111", one.name, got)
		}
		one.steps(&r)
		if got := c.tagsAt(c.two, r.client); got != [2]uint32{444, 333} {
			t.Errorf("%s: the tags are %d, want 444 and 333", one.name, got)
		}
	}
	if n := c.two.active()[0]; n != uint64(len(cases)) {
		t.Errorf("%d of %d associations are active", n, len(cases))
	}
}

// sctpOneWay checks that a node accepts the tag of an association whose endpoint answers its client
// directly, also after the client has restarted.
func (c *twoNodes) sctpOneWay() {
	const client, vip = "198.51.100.1:40000", "10.0.0.12:2020"
	for _, o := range []*opener{c.two, c.one} {
		c.sctp(o, client, vip, "chunks init=111")
	}
	c.sctp(c.one, client, vip, "tag 222 chunks cookie-echo:40")
	one := c.wait(1)[0]
	for _, tag := range []uint32{222, 444} {
		if err := dptest.AgeConnections(c.two.d.collection.Conntrack, c.two.d.collection.Jiffies(time.Second)); err != nil {
			c.t.Fatal(err)
		}
		one.Idle, one.Numbers.Acked = 0, tag
		c.put(one)
		if got := c.tagsAt(c.two, client); got != [2]uint32{tag, 0} {
			c.t.Errorf("the tags are %d, want %d and an unknown one", got, tag)
		}
	}
}

// TestCopiesSCTPPaths checks which copies let packets on further paths find their association: none
// of a client that may be forged, and none of a service with one VIP.
func TestCopiesSCTPPaths(t *testing.T) {
	t.Parallel()
	c := &twoNodes{t: t, two: newOpener(t, "10.0.0.1:2020/sctp secips=10.0.1.1 endpoints=192.0.2.1:5001")}
	addService(t, c.two, "10.0.0.2:2020/sctp endpoints=192.0.2.1:5001")
	const replied = uint8(bpf.TcConnectionFlagCONN_REPLIED)
	const assured = replied | uint8(bpf.TcConnectionFlagCONN_ASSURED)
	for i, one := range []struct {
		name, vip string
		flags     uint8
		tag       uint32
		paths     int
	}{
		{"COOKIE ECHO", "10.0.0.1:2020", assured, 222, 1},
		{"COOKIE ACK, with an unknown tag", "10.0.0.1:2020", assured, 0, 1},
		{"INIT ACK", "10.0.0.1:2020", replied, 222, 0},
		{"one VIP", "10.0.0.2:2020", assured, 222, 0},
	} {
		client := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.1"), uint16(40000+i))
		before := c.paths()
		got := c.put(report.ConnectionCopy{
			Protocol: lb.SCTP, Client: client, VIP: netip.MustParseAddrPort(one.vip), Source: client,
			Endpoint: netip.MustParseAddrPort("192.0.2.1:5001"), Flags: one.flags, Generation: 1,
			Numbers: report.TCPNumbers{Acked: one.tag, ReplyAcked: 111},
		})
		if n := c.paths() - before; got[0] != report.CopyInserted || n != one.paths {
			t.Errorf("%s: %v with %d paths, want %v with %d", one.name, got[0], n, report.CopyInserted, one.paths)
		}
	}
}
