// Package ruletest generates firewall rules and packets for tests.
package ruletest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/policy"
)

// Sets returns n rules of each kind, including kinds that decision trees cannot separate well.
func Sets(n int, rng *rand.Rand) map[string][]policy.Rule {
	address := func(v6 bool) netip.Addr {
		if v6 {
			b := [16]byte{0x20, 0x01, 0x0d, 0xb8}
			for i := 4; i < 16; i++ {
				b[i] = byte(rng.Uint32())
			}
			return netip.AddrFrom16(b)
		}
		return netip.AddrFrom4([4]byte{byte(10 + rng.IntN(3)), byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())})
	}
	prefix := func(v6 bool, least int) netip.Prefix {
		a := address(v6)
		return netip.PrefixFrom(a, least+rng.IntN(a.BitLen()-least+1)).Masked()
	}
	ports := func() policy.RulePorts {
		switch rng.IntN(4) {
		case 0:
			return policy.RulePorts{}
		case 1:
			first := uint16(rng.IntN(60000))
			return policy.RulePorts{Min: first, Max: first + uint16(rng.IntN(5000))}
		}
		p := uint16(1 + rng.IntN(65534))
		return policy.RulePorts{Min: p, Max: p}
	}
	verdict := func() policy.RuleVerdict { return policy.RuleVerdict{Action: policy.RuleAction(rng.IntN(3))} }
	many := func(one func(i int) policy.Rule) []policy.Rule { return distinct(n, one) }
	return map[string][]policy.Rule{
		"hosts": many(func(int) policy.Rule {
			a := address(false)
			return policy.Rule{Source: netip.PrefixFrom(a, 32), RuleVerdict: verdict()}
		}),
		"hosts of one network": many(func(i int) policy.Rule {
			return policy.Rule{Source: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}), 32), RuleVerdict: verdict()}
		}),
		"hosts of IPv6": many(func(int) policy.Rule {
			return policy.Rule{Destination: netip.PrefixFrom(address(true), 128), DestinationPorts: ports(), Protocol: 6, RuleVerdict: verdict()}
		}),
		"mixed": many(func(int) policy.Rule {
			r := mixed(rng, prefix)
			r.DestinationPorts, r.RuleVerdict = ports(), verdict()
			if rng.IntN(4) == 0 {
				r.SourcePorts = ports()
			}
			return r
		}),
		"ports": many(func(i int) policy.Rule {
			return policy.Rule{DestinationPorts: policy.RulePorts{Min: uint16(1 + i), Max: uint16(1 + i)}, Protocol: 6, RuleVerdict: verdict()}
		}),
		"nested ports": many(func(i int) policy.Rule {
			return policy.Rule{
				DestinationPorts: policy.RulePorts{Min: uint16(1 + i), Max: uint16(60000 - i)}, SourcePorts: ports(),
				Preference: uint16(rng.IntN(65536)), RuleVerdict: verdict(),
			}
		}),
		"wide": many(func(i int) policy.Rule {
			return policy.Rule{
				Source: prefix(false, 1), Destination: prefix(false, 1), Preference: uint16(rng.IntN(65536)),
				SourcePorts: ports(), DestinationPorts: ports(), RuleVerdict: verdict(),
			}
		}),
	}
}

// Hostile returns n rules of each kind that are hardest to separate: each packet is in the ranges
// of many rules.
func Hostile(n int, rng *rand.Rand) map[string][]policy.Rule {
	broad := func(v6 bool) netip.Prefix {
		if v6 {
			var b [16]byte
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			return netip.PrefixFrom(netip.AddrFrom16(b), rng.IntN(64)).Masked()
		}
		b := [4]byte{byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())}
		return netip.PrefixFrom(netip.AddrFrom4(b), rng.IntN(17)).Masked()
	}
	ports := func(least int) policy.RulePorts {
		a := 1 + rng.IntN(65535-least)
		return policy.RulePorts{Min: uint16(a), Max: uint16(a + least + rng.IntN(65536-a-least))}
	}
	rule := func(one func(i int) policy.Rule) []policy.Rule {
		return distinct(n, func(i int) policy.Rule {
			r := one(i)
			r.Preference = uint16(rng.IntN(65536))
			r.Action = policy.RuleAction(rng.IntN(3))
			return r
		})
	}
	return map[string][]policy.Rule{
		"broad": rule(func(int) policy.Rule {
			return policy.Rule{Source: broad(false), Destination: broad(false), SourcePorts: ports(1000), DestinationPorts: ports(1000)}
		}),
		"broad of IPv6": rule(func(int) policy.Rule {
			return policy.Rule{Source: broad(true), Destination: broad(true), SourcePorts: ports(1000), DestinationPorts: ports(1000)}
		}),
		"wildcards": rule(func(i int) policy.Rule {
			return policy.Rule{Protocol: uint8(1 + i%255), Interface: fmt.Sprint("eth", i/255)}
		}),
		"nested prefixes": rule(func(i int) policy.Rule {
			at := netip.AddrFrom4([4]byte{10, 11, 12, 13})
			return policy.Rule{
				Source: netip.PrefixFrom(at, i%33).Masked(), Destination: netip.PrefixFrom(at, i/33%33).Masked(), SourcePorts: ports(30000),
			}
		}),
		"port ranges": rule(func(int) policy.Rule {
			return policy.Rule{SourcePorts: ports(1), DestinationPorts: ports(1), Protocol: 6}
		}),
		"halves of ports": rule(func(int) policy.Rule {
			return policy.Rule{SourcePorts: ports(32768), DestinationPorts: ports(32768)}
		}),
		"hosts at the places of a sample": misleading(n),
		"one field each": rule(func(i int) policy.Rule {
			switch i % 4 {
			case 0:
				return policy.Rule{Source: broad(false), SourcePorts: ports(40000)}
			case 1:
				return policy.Rule{Destination: broad(false), DestinationPorts: ports(40000)}
			case 2:
				return policy.Rule{SourcePorts: ports(100), Protocol: 17}
			}
			return policy.Rule{DestinationPorts: ports(100), Protocol: 6}
		}),
	}
}

// misleading returns rules that mislead a compiler that samples them: rules at even distances are
// hosts, and all others are one network.
func misleading(n int) []policy.Rule {
	sampled := map[int]bool{}
	for i := range 96 {
		sampled[i*n/96], sampled[n-1-i*n/96] = true, true // in either order
	}
	return distinct(n, func(i int) policy.Rule {
		port := uint16(1 + i)
		r := policy.Rule{
			Preference: uint16(i), Protocol: 6,
			Source:           netip.MustParsePrefix("10.1.0.0/16"),
			DestinationPorts: policy.RulePorts{Min: port, Max: port},
		}
		if sampled[i] {
			r.Source = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 6), byte(i << 2)}), 32)
			r.DestinationPorts = policy.RulePorts{}
		}
		return r
	})
}

// distinct calls one until it has returned n different rules.
func distinct(n int, one func(i int) policy.Rule) []policy.Rule {
	seen := make(map[string]bool, n)
	list := make([]policy.Rule, 0, n)
	for len(list) < n {
		r := one(len(list)).Normal()
		if k := r.Key(); !seen[k] {
			seen[k] = true
			list = append(list, r)
		}
	}
	return list
}

// mixed returns a rule of any addresses, protocols and interfaces.
func mixed(rng *rand.Rand, prefix func(v6 bool, least int) netip.Prefix) policy.Rule {
	v6 := rng.IntN(3) == 0
	r := policy.Rule{Preference: uint16(rng.IntN(1000))}
	switch rng.IntN(10) {
	case 0:
		r.Source = prefix(v6, 0)
	case 1:
		r.Destination = prefix(v6, 8)
	case 2, 3, 4:
		r.Source = prefix(v6, 16)
	default:
		r.Source, r.Destination = prefix(v6, 12), prefix(v6, 16)
	}
	if rng.IntN(2) == 0 {
		r.Protocol = []uint8{6, 17}[rng.IntN(2)]
	}
	if rng.IntN(20) == 0 {
		r.Interface = []string{"client", "server", "none"}[rng.IntN(3)]
	}
	return r
}

// Packet returns a packet that a rule may match, or nearly so.
func Packet(r *policy.Rule, rng *rand.Rand) bpf.RulePacket {
	v6 := r.Source.IsValid() && r.Source.Addr().Is6() || r.Destination.IsValid() && r.Destination.Addr().Is6()
	if !r.Source.IsValid() && !r.Destination.IsValid() {
		v6 = rng.IntN(2) == 0
	}
	in := func(p netip.Prefix, ports policy.RulePorts) netip.AddrPort {
		a := netip.AddrFrom4([4]byte{10, byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())})
		if v6 {
			a = netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte(rng.Uint32())})
		}
		if p.IsValid() {
			b := p.Addr().AsSlice()
			for i := p.Bits(); i < 8*len(b); i++ {
				b[i/8] |= byte(rng.IntN(2)) << (7 - i%8)
			}
			if rng.IntN(8) == 0 {
				b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
			}
			a, _ = netip.AddrFromSlice(b)
		}
		port := uint16(rng.Uint32())
		if !ports.Any() {
			port = ports.Min + uint16(rng.IntN(int(ports.Max)-int(ports.Min)+2)) - uint16(rng.IntN(2))
		}
		return netip.AddrPortFrom(a, port)
	}
	p := bpf.RulePacket{Source: in(r.Source, r.SourcePorts), Destination: in(r.Destination, r.DestinationPorts), Interface: uint32(rng.IntN(5))}
	p.Protocol = []uint8{r.Protocol, 6, 17, 1, 47}[rng.IntN(5)]
	p.HasPorts = p.Protocol == 6 || p.Protocol == 17
	return p
}

// Matches reports whether a rule matches, by its definition. index returns the number of an
// interface.
func Matches(r *policy.Rule, p *bpf.RulePacket, index func(string) (int, bool)) bool {
	in := func(want netip.Prefix, a netip.Addr) bool { return !want.IsValid() || want.Contains(a) }
	port := func(want policy.RulePorts, n uint16) bool {
		return want.Any() || p.HasPorts && want.Min <= n && n <= want.Max
	}
	if r.Interface != "" {
		if i, ok := index(r.Interface); !ok || uint32(i) != p.Interface {
			return false
		}
	}
	return in(r.Source, p.Source.Addr()) && in(r.Destination, p.Destination.Addr()) &&
		port(r.SourcePorts, p.Source.Port()) && port(r.DestinationPorts, p.Destination.Port()) &&
		(r.Protocol == 0 || r.Protocol == p.Protocol)
}
