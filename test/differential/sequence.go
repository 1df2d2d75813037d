// Package differential sends the same random packets through two load balancers, and compares the
// packets that leave: the kernel (nftables dnat and nf_conntrack, with forwarding), and loxilb.
// Each has a network of its own (test/packet/lab), with raw frames on both sides and without other
// hosts.
//
// If the two differ, one of them is wrong or the difference is intended and listed in
// differences.go.
package differential

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"loxilb/internal/lb"
	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// sequence is a test case for both load balancers.
type sequence struct {
	seed     uint64
	services []lb.Service
	flows    []flow
	steps    []step
}

// flow is a client and the service that it uses, as the client sees them.
type flow struct {
	proto       pkt.Proto
	client, vip netip.AddrPort
}

// ends are the source and the endpoint of a flow, taken from the last packet that left for an
// endpoint.
type ends struct{ source, endpoint netip.AddrPort }

// step is a packet that arrives, whole or in fragments.
type step struct {
	flow   int
	server bool        // the endpoint sends the packet
	packet *pkt.Packet // without addresses and ports, which the flow determines
	router netip.Addr  // source address, if it is not an end of the flow
	cuts   []int       // fragments: where each ends, in bytes after the IP header
	order  []int       // fragments that arrive, in this order
}

// linkName returns the interface at which the packet arrives.
func (s step) linkName() string {
	if s.server {
		return "server"
	}
	return "client"
}

func (s step) link(n *lab.Network) *lab.Link {
	if s.server {
		return n.Server
	}
	return n.Client
}

// resolve returns the step's packet with addresses and ports.
func (s step) resolve(f flow, e ends) *pkt.Packet {
	from, to := f.client, f.vip
	if s.server {
		from, to = e.endpoint, e.source
	}
	p := s.packet.Clone().SetSrc(from).SetDst(to)
	if p.Inner != nil { // the packet that the error is about
		p.Inner.SetSrc(to).SetDst(from)
	}
	if s.router.IsValid() {
		p.Set(pkt.Src, pkt.Addr(s.router))
	}
	return p
}

// arriving returns the packets that arrive: p, or its fragments with the identification id.
func (s step) arriving(n *lab.Network, p *pkt.Packet, id uint64) []*pkt.Packet {
	p = n.Arriving(s.link(n), p)
	if len(s.cuts) == 0 {
		return []*pkt.Packet{p}
	}
	var all []*pkt.Packet
	body := p.Build()[p.Offset():]
	for _, i := range s.order {
		begin := 0
		if i > 0 {
			begin = s.cuts[i-1]
		}
		q := pkt.New(pkt.IP).Set(pkt.Data, pkt.Value{Text: string(body[begin:s.cuts[i]])})
		for _, f := range []pkt.Field{pkt.Src, pkt.Dst, pkt.TTL, pkt.TOS, pkt.From, pkt.To} {
			q.Set(f, p.Value(f))
		}
		q.SetNum(pkt.Protocol, protocolNumber(p.Proto))
		more := i < len(s.cuts)-1
		if p.Is6() {
			q.Set(pkt.Ext, pkt.Value{Text: fmt.Sprintf("frag:%d%s:%d", begin, map[bool]string{true: "+"}[more], id)})
		} else {
			q.SetNum(pkt.Frag, uint64(begin)).SetNum(pkt.IPID, id)
			if more {
				q.Set(pkt.MF, pkt.Value{})
			}
		}
		all = append(all, pkt.Decode(q.Build()))
	}
	return all
}

func protocolNumber(p pkt.Proto) uint64 {
	return map[pkt.Proto]uint64{pkt.TCP: 6, pkt.UDP: 17, pkt.ICMP: 1, pkt.ICMP6: 58}[p]
}

// initialEnds returns the ends of a flow before any of its packets has left for an endpoint.
func (q *sequence) initialEnds(f flow) ends {
	for _, s := range q.services {
		if s.VIP == f.vip.Addr() && s.Port == f.vip.Port() && (s.Protocol == lb.TCP) == (f.proto == pkt.TCP) {
			return ends{source: f.client, endpoint: s.Endpoints[0].AddrPort()}
		}
	}
	return ends{source: f.client, endpoint: q.services[0].Endpoints[0].AddrPort()}
}

// sent is a packet that left.
type sent struct {
	link   string
	packet *pkt.Packet
	cause  int // index of the arrived packet that caused it
}

// outcome is the result of a step in one of the load balancers.
type outcome struct {
	arrived []*pkt.Packet // packets that arrived, with this balancer's endpoints and source ports
	ends    ends          // of the step's flow, after the step
	left    []sent
	reasons []string // loxilb: the counted drop reason, for each packet that arrived
	invalid bool     // kernel: conntrack considers the packet invalid
}

// reason returns the first drop reason that was counted, or "".
func (o outcome) reason() string { return cmp.Or(o.reasons...) }

func (o outcome) String() string {
	var words []string
	for _, s := range o.left {
		words = append(words, "out "+s.link+" "+s.packet.Brief().String())
	}
	if len(o.left) == 0 {
		words = append(words, "nothing leaves")
	}
	if o.reason() != "" {
		words = append(words, "reason="+o.reason())
	}
	if o.invalid {
		words = append(words, "invalid")
	}
	return strings.Join(words, "; ")
}
