package policy

import (
	"net/netip"
	"slices"

	"loxilb/internal/lb"
)

// IPsecPolicy is a policy of the kernel's IPsec. Packets of services bypass IPsec, so packets that
// a policy blocks or encrypts are refused.
type IPsecPolicy struct {
	Forward                       bool // the policy is for forwarded packets as they arrive; otherwise for packets as they leave
	Source, Destination           netip.Prefix
	SourcePorts, DestinationPorts RulePorts
	Protocol                      uint8 // IANA; 0: any
	Action                        IPsecAction
	Text                          string // in the format of ip xfrm policy
}

// IPsecAction is the action of a policy.
type IPsecAction uint8

// The actions.
const (
	IPsecAllow   IPsecAction = iota
	IPsecRefuse              // block the packets; if they leave, also: encrypt or authenticate them
	IPsecDecrypt             // accept arriving packets only if they are encrypted or authenticated
)

// IPsecFlow is a set of packets: all from Source to Destination.
type IPsecFlow struct {
	Source, Destination           netip.Prefix // of one IP version
	SourcePorts, DestinationPorts RulePorts
	Protocol                      uint8
	Arrives                       bool // the addresses are those of arriving packets, not of leaving ones
	Clients                       IPsecSide
}

// IPsecSide is the side of a flow with the addresses of clients.
type IPsecSide uint8

// The sides.
const (
	IPsecNeither IPsecSide = iota
	IPsecSource
	IPsecDestination // the packets are answers
)

// IPsecRefusal is a policy that refuses packets of a flow.
type IPsecRefusal struct {
	Policy     string
	RefusesAll bool         // it refuses all packets of the flow
	Clients    netip.Prefix // clients whose packets or answers it refuses; not valid: addresses do not distinguish them
	Answers    bool         // it refuses answers to clients
}

// IPsecRefusals returns the policies that refuse packets of a flow, in the kernel's order.
func IPsecRefusals(list []IPsecPolicy, f *IPsecFlow) []IPsecRefusal {
	return append(refusalsOf(list, f, false), refusalsOf(list, f, true)...)
}

// refusalsOf is IPsecRefusals for policies with this value of Forward.
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
			out = append(out, IPsecRefusal{Policy: p.Text, RefusesAll: whole && !exempt, Clients: p.clients(f), Answers: f.Clients == IPsecDestination})
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

// isShadowed reports whether an earlier policy allows all packets of the policy, so it never
// applies.
func (p *IPsecPolicy) isShadowed(earlier []IPsecPolicy) bool {
	whole := IPsecFlow{
		Source: p.Source, Destination: p.Destination, SourcePorts: p.SourcePorts, DestinationPorts: p.DestinationPorts, Protocol: p.Protocol,
	}
	return slices.ContainsFunc(earlier, func(o IPsecPolicy) bool {
		return o.Action == IPsecAllow && o.Forward == p.Forward && (o.Protocol == 0 || o.Protocol == p.Protocol) && o.covers(&whole)
	})
}

// overlaps reports whether the policy applies to packets of a flow.
func (p *IPsecPolicy) overlaps(f *IPsecFlow) bool {
	return p.Source.Overlaps(f.Source) && p.Destination.Overlaps(f.Destination) && (p.Protocol == 0 || p.Protocol == f.Protocol) &&
		p.SourcePorts.overlaps(f.SourcePorts) && p.DestinationPorts.overlaps(f.DestinationPorts)
}

// covers reports whether the policy, which overlaps a flow, applies to all of its packets.
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
		Destination: singleHost(e.Addr), DestinationPorts: portsOf(e.Port, e.PortMax), Protocol: protocolOf(s, e.Addr), Source: anyAddr(e.Addr), Clients: IPsecSource,
	}
	arriving := IPsecFlow{Source: anyAddr(s.VIP), Destination: clientDestination(s), DestinationPorts: portsOf(s.Port, s.PortMax), Protocol: protocolOf(s, s.VIP), Arrives: true, Clients: IPsecSource}
	answer := IPsecFlow{Source: arriving.Destination, SourcePorts: arriving.DestinationPorts, Destination: anyAddr(s.VIP), Protocol: arriving.Protocol, Clients: IPsecDestination}
	switch {
	case s.Mode == lb.ModeDSR:
		direct := arriving
		direct.Arrives = false
		return append(append(flows, endpoint, arriving, direct), outerFlows(s, e, source)...)
	case s.Mode == lb.ModeFullNAT && s.VIP.Is4() == e.Addr.Is4() && len(s.SNAT) == 0:
		endpoint.Source, endpoint.Clients = clientDestination(s), IPsecNeither
	case s.Mode == lb.ModeAuto && s.VIP.Is4() == e.Addr.Is4() && source.IsValid() && len(s.SNAT) == 0: // the endpoint sees the client or this machine
		ours := endpoint
		ours.Source, ours.Clients = singleHost(source), IPsecNeither
		flows = append(flows, ours)
	case (s.Mode != lb.ModeDefault || s.VIP.Is4() != e.Addr.Is4()) && source.IsValid() && len(s.SNAT) == 0:
		endpoint.Source, endpoint.Clients = singleHost(source), IPsecNeither
	}
	return append(flows, endpoint, arriving, answer)
}

// outerFlows returns the flow of the outer headers of packets to an endpoint; none without a
// tunnel.
func outerFlows(s *lb.Service, e lb.Endpoint, source netip.Addr) []IPsecFlow {
	const udp, ipip, ipv6, gue = 17, 4, 41, 6080
	outer := IPsecFlow{Source: anyAddr(e.Addr), Destination: singleHost(e.Addr), Protocol: ipip}
	switch {
	case s.Tunnel == lb.TunnelNone:
		return nil
	case s.Tunnel == lb.TunnelGUE:
		outer.Protocol, outer.DestinationPorts = udp, RulePorts{gue, gue}
		if source.IsValid() {
			outer.Source = singleHost(source)
		}
	case s.VIP.Is6():
		outer.Protocol = ipv6
	}
	return []IPsecFlow{outer}
}

// clientDestination returns the addresses to which clients of the service send packets.
func clientDestination(s *lb.Service) netip.Prefix {
	if s.VIP.IsUnspecified() {
		return anyAddr(s.VIP)
	}
	return singleHost(s.VIP)
}

func protocolOf(s *lb.Service, a netip.Addr) uint8 {
	return uint8(s.Protocol.ForIPVersion(a.Is6()))
}

func portsOf(first, last uint16) RulePorts {
	if first == 0 {
		return RulePorts{}
	}
	return RulePorts{first, max(first, last)}
}

func singleHost(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func anyAddr(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, 0).Masked() }
