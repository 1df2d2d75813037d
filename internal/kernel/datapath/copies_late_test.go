package datapath

import (
	"net/netip"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// TestCopiesLate checks that an end that a node gets late closes only its own connection. It does
// not close a later connection with the same generation, which repeats after 256, does not reset a
// connection that has continued, and is not inserted.
func TestCopiesLate(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, tcpCopies)
	vip, endpoint := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("192.0.2.1:8080")
	closed, reset := uint8(report.FlagsAcked|bpf.TcConnectionFlagCONN_FIN_CLIENT|bpf.TcConnectionFlagCONN_FIN_ENDPOINT), uint8(report.FlagReset)
	for i, step := range []struct {
		name    string
		ends    uint8
		change  func(end *report.ConnectionCopy)
		silent  time.Duration // of the connection before the copy
		absent  bool
		want    report.CopyResult
		remains uint64 // active connections
	}{
		{name: "closed", ends: closed, want: report.CopyMerged},
		{name: "reset", ends: reset, want: report.CopyMerged},
		{name: "closed after more data", ends: closed, want: report.CopyMerged, change: func(end *report.ConnectionCopy) {
			end.Numbers.Sent, end.Numbers.ReplySent = end.Numbers.Sent+1000, end.Numbers.ReplySent+1
		}},
		{name: "the client has continued", ends: closed, want: report.CopyOld, remains: 1, change: func(end *report.ConnectionCopy) { end.Numbers.Sent-- }},
		{name: "the endpoint has continued", ends: closed, want: report.CopyOld, remains: 1, change: func(end *report.ConnectionCopy) { end.Numbers.ReplySent-- }},
		{name: "reset, and has continued", ends: reset, want: report.CopyOld, remains: 1, change: func(end *report.ConnectionCopy) { end.Numbers.Sent-- }},
		{name: "another generation", ends: closed, want: report.CopyOld, remains: 1, change: func(end *report.ConnectionCopy) { end.Generation++ }},
		{name: "an earlier generation, and used later", ends: reset, want: report.CopyOld, remains: 1, change: func(end *report.ConnectionCopy) {
			end.Generation--
			end.Idle = 0
		}},
		{name: "used after the end, by a clock that was paused", ends: closed, want: report.CopyMerged,
			change: func(end *report.ConnectionCopy) {
				end.Numbers.Sent, end.Numbers.ReplySent, end.Idle = end.Numbers.Sent+1, end.Numbers.ReplySent+1<<20, time.Minute
			}},
		{name: "used after the end, with numbers far below", ends: closed, want: report.CopyOld, remains: 1,
			change: func(end *report.ConnectionCopy) {
				end.Numbers.ReplySent, end.Idle = end.Numbers.ReplySent+1<<22, 15*time.Second
			}},
		{name: "the numbers have wrapped around since the end", ends: reset, want: report.CopyOld, remains: 1, change: func(end *report.ConnectionCopy) {
			end.Numbers.Sent, end.Numbers.ReplySent = end.Numbers.Sent+1<<30, end.Numbers.ReplySent+1<<30
			end.Idle = 3 * time.Hour
		}},
		{name: "closed after 3 GB at another node", ends: closed, silent: time.Minute, want: report.CopyMerged,
			change: func(end *report.ConnectionCopy) {
				end.Numbers.ReplySent, end.Idle = end.Numbers.ReplySent+3<<30, 0
			}},
		{name: "reset after 3 GB in both directions", ends: reset, silent: time.Minute, want: report.CopyMerged,
			change: func(end *report.ConnectionCopy) {
				end.Numbers.Sent, end.Numbers.ReplySent, end.Idle = end.Numbers.Sent+3<<30, end.Numbers.ReplySent+3<<30, 0
			}},
		{name: "used at the time of the end, with higher numbers", ends: closed, silent: time.Minute, want: report.CopyOld, remains: 1,
			change: func(end *report.ConnectionCopy) { end.Numbers.Sent -= 1 << 30 }},
		{name: "a copy that arrived late", ends: closed, want: report.CopyMerged, change: func(end *report.ConnectionCopy) { end.Idle = 3 * time.Second }},
		{name: "absent", ends: closed, want: report.CopyOld, absent: true},
	} {
		c.subtest(t, step.name, func() {
			client := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.1"), 40000+uint16(i))
			c.open(client, vip, endpoint)
			sent := c.wait(2)
			end := sent[len(sent)-1]
			if !step.absent {
				end.Idle += step.silent
				c.put(end)
			}
			before := c.entries(c.two)
			end.Late = true
			end.Flags |= step.ends
			if step.change != nil {
				step.change(&end)
			}
			if got := c.put(end)[0]; got != step.want {
				c.t.Errorf("the late end: %v, want %v", got, step.want)
			}
			if got := c.two.active()[0]; got != step.remains {
				c.t.Errorf("%d connections are active, want %d", got, step.remains)
			}
			if step.want == report.CopyOld {
				for key, row := range c.entries(c.two) {
					if before[key] != row {
						c.t.Errorf("the entry %v has changed: %+v, was %+v", key, row, before[key])
					}
				}
				if now := c.entries(c.two); len(now) != len(before) {
					c.t.Errorf("%d entries, want %d", len(now), len(before))
				}
			}
		})
	}
}

// TestCopiesLateDSR checks that the FIN of a client whose endpoint answers directly is copied at
// once. It ends the connection at a node that has missed it, unless the client has acknowledged
// more there.
func TestCopiesLateDSR(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, "10.0.0.6:80/tcp mode=dsr endpoints=192.0.2.1:80,192.0.2.2:80")
	client, vip := netip.MustParseAddrPort("198.51.100.1:40000"), netip.MustParseAddrPort("10.0.0.6:80")
	c.run(c.one, dptest.Segment(client, vip, 0x02, 1000, 0))
	c.run(c.one, dptest.Segment(client, vip, 0x10, 1101, 5001))
	c.run(c.one, dptest.Segment(client, vip, 0x10, 1201, 5101))
	c.put(c.wait(2)...)
	c.run(c.one, dptest.Segment(client, vip, 0x11, 1301, 5101))
	end := c.wait(3)[2]
	if !end.HasEnded() || end.IsClosed() {
		t.Errorf("the copy after the FIN is %+v", end)
	}
	c.run(c.one, dptest.Segment(client, vip, 0x11, 1301, 5101))
	c.run(c.one, dptest.Segment(client, vip, 0x14, 1401, 5101))
	if again := c.wait(4)[3]; !again.IsClosed() {
		t.Errorf("the copy after the RST is %+v", again)
	}
	end.Late = true
	earlier := end
	earlier.Flags |= report.FlagReset
	earlier.Numbers.Acked, earlier.Numbers.ReplySent = earlier.Numbers.Acked-1000, earlier.Numbers.ReplySent-1000
	elsewhere := end
	elsewhere.Endpoint = netip.MustParseAddrPort("192.0.2.1:80")
	if end.Endpoint == elsewhere.Endpoint {
		elsewhere.Endpoint = netip.MustParseAddrPort("192.0.2.2:80")
	}
	for _, step := range []struct {
		end     report.ConnectionCopy
		want    report.CopyResult
		remains uint64
	}{{earlier, report.CopyOld, 1}, {elsewhere, report.CopyOld, 1}, {end, report.CopyMerged, 0}} {
		if got := c.put(step.end)[0]; got != step.want {
			t.Errorf("the late end %+v: %v, want %v", step.end, got, step.want)
		}
		if active := c.two.active(); active[0]+active[1] != step.remains {
			t.Errorf("%d connections are active, want %d", active, step.remains)
		}
	}
}
