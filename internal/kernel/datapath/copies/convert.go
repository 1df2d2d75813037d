package copies

import (
	"math"
	"net/netip"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

const (
	oneWay = uint8(bpf.TcConnectionTraitCONN_ONE_WAY)
	family = uint8(bpf.TcHopFlagHOP_FAMILY)
)

// describe converts a copy for other nodes. It returns false if the endpoint was removed, or opened
// the connection itself: other nodes cannot continue such a connection.
func (c *Copies) describe(r *bpf.TcConnectionCopy) (report.ConnectionCopy, bool) {
	origin, ok := c.tables.Origin(r.Id)
	if !ok {
		return report.ConnectionCopy{}, false
	}
	out := report.ConnectionCopy{
		Protocol: lb.Protocol(r.Protocol), Mark: origin.Mark,
		Client: bpf.AddrPort(r.Client, r.ClientPort), VIP: bpf.AddrPort(r.Vip, r.VipPort),
		Source: bpf.AddrPort(r.Source, r.SourcePort), Endpoint: bpf.AddrPort(r.Endpoint, r.EndpointPort),
		Flags: r.Flags, Hop: r.Hop, Traits: r.Traits, Generation: r.Generation,
		Numbers: report.TCPNumbers{Sent: r.SeqEnd, Acked: r.Ack, ReplySent: r.ReplySeqEnd, ReplyAcked: r.ReplyAck},
		Idle:    time.Duration(r.Idle) * c.shared.Jiffy(),
	}
	if r.Traits&oneWay != 0 {
		out.Endpoint = origin.Endpoint
	}
	return out, !origin.Opens || out.Client.Addr() != origin.Endpoint.Addr()
}

// row converts a copy of another node for the program that inserts it.
func (c *Copies) row(in *report.ConnectionCopy, at place) bpf.TcConnectionCopy {
	r := bpf.TcConnectionCopy{
		Protocol: uint8(in.Protocol), Id: at.Endpoint, Service: at.Service, PersistPrefix: at.PersistPrefix,
		Flags: in.Flags, Hop: in.Hop, Traits: in.Traits, Generation: in.Generation,
		SeqEnd: in.Numbers.Sent, Ack: in.Numbers.Acked, ReplySeqEnd: in.Numbers.ReplySent, ReplyAck: in.Numbers.ReplyAcked,
		Idle: ticks(in.Idle, c.shared.Jiffy()),
	}
	if in.Late {
		r.Late = 1
	}
	if at.NoXDP {
		r.Hop |= uint8(bpf.TcHopFlagHOP_NO_XDP)
	}
	r.Client, r.ClientPort = address(in.Client)
	r.Vip, r.VipPort = address(in.VIP)
	r.Source, r.SourcePort = address(in.Source)
	r.Endpoint, r.EndpointPort = address(in.Endpoint)
	if r.Traits&oneWay != 0 {
		r.Endpoint, r.EndpointPort = r.Vip, r.VipPort
	}
	return r
}

// ticks returns an age in jiffies, at most half of their range: the end of a connection may be 50
// days old, which would otherwise appear to be in the future.
func ticks(age, jiffy time.Duration) uint32 { return uint32(min(age/jiffy, math.MaxInt32)) }

func address(a netip.AddrPort) (bpf.TcIpAddr, uint16) { return bpf.Addr(a.Addr()), bpf.Port(a.Port()) }

// isPlausible reports whether the addresses of a copy have the IP versions of its traits, as the
// packet path assumes.
func isPlausible(in *report.ConnectionCopy) bool {
	if in.Client.Addr().Is4() != in.VIP.Addr().Is4() || in.Source.Addr().Is4() != in.Endpoint.Addr().Is4() {
		return in.Traits&oneWay != 0
	}
	return (in.Client.Addr().Is4() != in.Endpoint.Addr().Is4()) == (in.Hop&family != 0)
}
