package policy

import (
	"net/netip"
	"slices"

	"loxilb/internal/lb"
)

// IPsecPolicy is a policy of the kernel's IPsec. Packets of services bypass IPsec, so packets that
// a policy blocks or encrypts are refused.
type IPsecPolicy struct {
	Forward                       bool // a policy for arriving packets that are forwarded; otherwise for leaving packets
	Source, Destination           netip.Prefix
	SourcePorts, DestinationPorts RulePorts
	Protocol                      uint8 // IANA; 0: any
	Action                        IPsecAction
	Text                          string // in the words of ip xfrm policy
}

// IPsecAction is the action of a policy.
type IPsecAction uint8

// The actions.
const (
	IPsecAllow   IPsecAction = iota
	IPsecRefuse              // block; of packets that leave also: encrypt or authenticate
	IPsecDecrypt             // for arriving packets: they must be encrypted or authenticated
)

// IPsecFlow is a set of packets: all from Source to Destination.
type IPsecFlow struct {
	Source, Destination           netip.Prefix // of one IP version
	SourcePorts, DestinationPorts RulePorts
	Protocol                      uint8
	Arrives                       bool // the addresses apply to packets as they arrive, not as they leave
	Clients                       IPsecSide
}

// IPsecSide is the side of a flow with the addresses of clients.
type IPsecSide uint8

// The sides.
const (
	IPsecNeither IPsecSide = iota
	IPsecSource
	IPsecDestination // the flow is answers
)

// IPsecRefusal is a policy that refuses packets, and whether it refuses all of a flow.
type IPsecRefusal struct {
	Policy  string
	Whole   bool
	Clients netip.Prefix // clients whose packets, or answers, it refuses, if it does not refuse all; not valid: addresses do not distinguish them
	Answers bool
}

// IPsecRefusals returns the policies that refuse packets of a flow, in the kernel's order.
func IPsecRefusals(list []IPsecPolicy, f *IPsecFlow) []IPsecRefusal {
	return append(refusalsOf(list, f, false), refusalsOf(list, f, true)...)
}

// refusalsOf is IPsecRefusals for policies of one direction.
func refusalsOf(list []IPsecPolicy, f *IPsecFlow, forward bool) (out []IPsecRefusal) {
	if f.Arrives && !forward {
		return nil
	}
	exempt := false // some packets of the flow may leave
	for i := range list {
		p := &list[i]
		if p.Forward != forward || !p.overlaps(f) || p.isShadowed(list[:i]) {
			continue
		}
		whole := p.covers(f)
		if p.Action == IPsecRefuse {
			out = append(out, IPsecRefusal{Policy: p.Text, Whole: whole && !exempt, Clients: p.clients(f), Answers: f.Clients == IPsecDestination})
		}
		if whole {
			return out
		}
		exempt = exempt || p.Action != IPsecRefuse
	}
	return out
}

// clients returns the clients of a flow to which the policy applies; not valid: addresses do not
// distinguish them.
func (p *IPsecPolicy) clients(f *IPsecFlow) netip.Prefix {
	var of netip.Prefix
	switch f.Clients {
	case IPsecSource:
		of = p.Source
	case IPsecDestination:
		of = p.Destination
	case IPsecNeither:
	}
	if !of.IsValid() || of.Bits() == 0 {
		return netip.Prefix{}
	}
	return of
}

// isShadowed reports whether an earlier policy that allows packets is about all of the policy's.
func (p *IPsecPolicy) isShadowed(earlier []IPsecPolicy) bool {
	whole := IPsecFlow{
		Source: p.Source, Destination: p.Destination, SourcePorts: p.SourcePorts, DestinationPorts: p.DestinationPorts, Protocol: p.Protocol,
	}
	return slices.ContainsFunc(earlier, func(o IPsecPolicy) bool {
		return o.Action == IPsecAllow && o.Forward == p.Forward && (o.Protocol == 0 || o.Protocol == p.Protocol) && o.covers(&whole)
	})
}

// overlaps reports whether the policy is about packets of a flow.
func (p *IPsecPolicy) overlaps(f *IPsecFlow) bool {
	return p.Source.Overlaps(f.Source) && p.Destination.Overlaps(f.Destination) && (p.Protocol == 0 || p.Protocol == f.Protocol) &&
		p.SourcePorts.overlaps(f.SourcePorts) && p.DestinationPorts.overlaps(f.DestinationPorts)
}

// covers reports whether the policy is about all packets of a flow that it meets.
func (p *IPsecPolicy) covers(f *IPsecFlow) bool {
	wide := func(wide, narrow netip.Prefix) bool {
		return wide.Bits() <= narrow.Bits() && wide.Contains(narrow.Addr())
	}
	return wide(p.Source, f.Source) && wide(p.Destination, f.Destination) && p.SourcePorts.contain(f.SourcePorts) && p.DestinationPorts.contain(f.DestinationPorts)
}

func (p RulePorts) overlaps(o RulePorts) bool {
	return p.Any() || o.Any() || p.Min <= o.Max && o.Min <= p.Max
}

func (p RulePorts) contain(o RulePorts) bool {
	return p.Any() || !o.Any() && p.Min <= o.Min && o.Max <= p.Max
}

// IPsecFlows returns the packets of a service to and from an endpoint. source is the address of
// this machine that the endpoint sees, if the mode translates it; not valid: unknown.
func IPsecFlows(s *lb.Service, e lb.Endpoint, source netip.Addr) (flows []IPsecFlow) {
	endpoint := IPsecFlow{
		Destination: one(e.Addr), DestinationPorts: portsOf(e.Port, e.PortMax), Protocol: protocolOf(s, e.Addr), Source: anyOf(e.Addr), Clients: IPsecSource,
	}
	arriving := IPsecFlow{Source: anyOf(s.VIP), Destination: place(s), DestinationPorts: portsOf(s.Port, s.PortMax), Protocol: protocolOf(s, s.VIP), Arrives: true, Clients: IPsecSource}
	answer := IPsecFlow{Source: arriving.Destination, SourcePorts: arriving.DestinationPorts, Destination: anyOf(s.VIP), Protocol: arriving.Protocol, Clients: IPsecDestination}
	switch {
	case s.Mode == lb.ModeDSR:
		direct := arriving
		direct.Arrives = false
		return append(append(flows, endpoint, arriving, direct), outerFlows(s, e, source)...)
	case s.Mode == lb.ModeFullNAT && s.VIP.Is4() == e.Addr.Is4() && len(s.SNAT) == 0:
		endpoint.Source, endpoint.Clients = place(s), IPsecNeither
	case s.Mode == lb.ModeAuto && s.VIP.Is4() == e.Addr.Is4() && source.IsValid() && len(s.SNAT) == 0: // one or the other
		ours := endpoint
		ours.Source, ours.Clients = one(source), IPsecNeither
		flows = append(flows, ours)
	case (s.Mode != lb.ModeDefault || s.VIP.Is4() != e.Addr.Is4()) && source.IsValid() && len(s.SNAT) == 0:
		endpoint.Source, endpoint.Clients = one(source), IPsecNeither
	}
	return append(flows, endpoint, arriving, answer)
}

// outerFlows returns the outer headers of packets to an endpoint.
func outerFlows(s *lb.Service, e lb.Endpoint, source netip.Addr) []IPsecFlow {
	const udp, ipip, ipv6, gue = 17, 4, 41, 6080
	outer := IPsecFlow{Source: anyOf(e.Addr), Destination: one(e.Addr), Protocol: ipip}
	switch {
	case s.Tunnel == lb.TunnelNone:
		return nil
	case s.Tunnel == lb.TunnelGUE:
		outer.Protocol, outer.DestinationPorts = udp, RulePorts{gue, gue}
		if source.IsValid() {
			outer.Source = one(source)
		}
	case s.VIP.Is6():
		outer.Protocol = ipv6
	}
	return []IPsecFlow{outer}
}

// place returns where clients send packets of the service to.
func place(s *lb.Service) netip.Prefix {
	if s.VIP.IsUnspecified() {
		return anyOf(s.VIP)
	}
	return one(s.VIP)
}

func protocolOf(s *lb.Service, a netip.Addr) uint8 {
	return uint8(s.Protocol.Over(a.Is6()))
}

func portsOf(first, last uint16) RulePorts {
	if first == 0 {
		return RulePorts{}
	}
	return RulePorts{first, max(first, last)}
}

func one(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func anyOf(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, 0).Masked() }
