package compile

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// noInterface is the index of a missing interface, at which no packet arrives.
const noInterface = ^uint32(0)

// Rules compiles firewall rules that have passed policy.Rule.Validate. index returns the index of
// an interface, and whether it exists.
func Rules(list []policy.Rule, index func(name string) (int, bool)) (bpf.RuleTable, error) {
	t, _, err := compileRules(list, index)
	return t, err
}

// compileRules also returns the number of steps to build the trees.
func compileRules(list []policy.Rule, index func(name string) (int, bool)) (t bpf.RuleTable, steps int, err error) {
	if len(list) > policy.MaxRules {
		return bpf.RuleTable{}, 0, fmt.Errorf("%d firewall rules exceed the limit of %d", len(list), policy.MaxRules)
	}
	ordered := make([]*policy.Rule, len(list))
	for i := range list {
		ordered[i] = &list[i]
	}
	slices.SortFunc(ordered, policy.CompareRules)
	t.Rules = make([]bpf.TcRule, len(list))
	ipv6 := make([]bool, len(list)) // ::/0 has the same words as any address of either version
	for i, r := range ordered {
		t.Rules[i] = rule(r, index)
		ipv6[i] = isIPv6(r.Source) || isIPv6(r.Destination)
		if r.Action == policy.RuleSNAT {
			t.Rules[i].Target = sourceOf(&t, r.ToSource)
		}
	}
	steps, err = buildTrees(&t, ipv6)
	return t, steps, err
}

func isIPv6(p netip.Prefix) bool { return p.IsValid() && !p.Addr().Is4() }

// sourceOf returns the index of an address in t.Sources, and adds it if it is missing.
func sourceOf(t *bpf.RuleTable, a netip.Addr) uint32 {
	i := slices.Index(t.Sources, a)
	if i < 0 {
		i = len(t.Sources)
		t.Sources = append(t.Sources, a)
	}
	return uint32(i)
}

// RuleIdentity returns the number that identifies a rule in the data path, so it keeps its counter.
func RuleIdentity(r *policy.Rule) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(r.Key()))
	return h.Sum64()
}

func rule(r *policy.Rule, index func(string) (int, bool)) bpf.TcRule {
	row := bpf.TcRule{Identity: RuleIdentity(r), Mark: r.Mark, Action: action(&r.RuleVerdict)}
	if r.Record {
		row.Action |= uint8(bpf.TcRuleActionRULE_RECORD)
	}
	for w := range row.Span {
		row.Span[w] = ^uint32(0)
	}
	set := func(word, first, last uint32) { row.First[word], row.Span[word] = first, last-first }
	prefix := func(word uint32, p netip.Prefix) {
		if !p.IsValid() {
			return
		}
		first, last := prefixBounds(p)
		for i := range first {
			set(word+uint32(i), first[i], last[i])
		}
	}
	prefix(uint32(bpf.TcRuleWordRULE_SADDR), r.Source)
	prefix(uint32(bpf.TcRuleWordRULE_DADDR), r.Destination)
	if p := r.SourcePorts; !p.Any() {
		set(uint32(bpf.TcRuleWordRULE_SPORT), uint32(p.Min), uint32(p.Max))
	}
	if p := r.DestinationPorts; !p.Any() {
		set(uint32(bpf.TcRuleWordRULE_DPORT), uint32(p.Min), uint32(p.Max))
	}
	if r.Protocol != 0 {
		set(uint32(bpf.TcRuleWordRULE_PROTOCOL), uint32(r.Protocol), uint32(max(r.Protocol, r.ProtocolMax)))
	} else if r.ProtocolMax != 0 {
		set(uint32(bpf.TcRuleWordRULE_PROTOCOL), 0, uint32(r.ProtocolMax))
	}
	if r.Interface != "" {
		i := noInterface
		if n, ok := index(r.Interface); ok {
			i = uint32(n)
		}
		set(uint32(bpf.TcRuleWordRULE_INTERFACE), i, i)
	}
	if r.Action == policy.RuleRedirect {
		n, _ := index(r.ToInterface)
		row.Target = uint32(n)
	}
	return row
}

func action(v *policy.RuleVerdict) uint8 {
	switch v.Action {
	case policy.RuleDrop:
		return uint8(bpf.TcRuleActionRULE_DROP)
	case policy.RuleTrap:
		return uint8(bpf.TcRuleActionRULE_TRAP)
	case policy.RuleRedirect:
		return uint8(bpf.TcRuleActionRULE_REDIRECT)
	case policy.RuleSNAT:
		if v.OnDefault {
			return uint8(bpf.TcRuleActionRULE_SNAT_DEFAULT)
		}
		return uint8(bpf.TcRuleActionRULE_SNAT)
	}
	return uint8(bpf.TcRuleActionRULE_ALLOW)
}

// prefixBounds returns the first and the last address of a prefix as the maps store them.
func prefixBounds(p netip.Prefix) (first, last [4]uint32) {
	a, bits := p.Addr().As16(), p.Bits()
	if p.Addr().Is4() {
		bits += mappedBits
	}
	for i := range first {
		free := ^uint32(0)
		if own := min(max(bits-32*i, 0), 32); own > 0 {
			free = uint32(uint64(1)<<(32-own) - 1)
		}
		first[i] = binary.BigEndian.Uint32(a[4*i:])
		last[i] = first[i] | free
	}
	return first, last
}

// Dropper finds the connections that firewall rules drop.
type Dropper struct {
	table      bpf.RuleTable
	interfaces []uint32 // interfaces of rules, and 0 for all others
}

// NewDropper returns a dropper of the rules, or nil if they drop nothing.
func NewDropper(t bpf.RuleTable) *Dropper {
	d := &Dropper{table: t, interfaces: []uint32{0}}
	drops := false
	for i := range t.Rules {
		r := &t.Rules[i]
		drops = drops || r.Does() == bpf.TcRuleActionRULE_DROP
		if r.Span[bpf.TcRuleWordRULE_INTERFACE] == 0 {
			d.interfaces = append(d.interfaces, r.First[bpf.TcRuleWordRULE_INTERFACE])
		}
	}
	if !drops {
		return nil
	}
	slices.Sort(d.interfaces)
	d.interfaces = slices.Compact(d.interfaces)
	return d
}

// Drops reports whether packets of a connection's client are dropped at any interface: connections
// do not store at which one they arrive.
func (d *Dropper) Drops(c *report.Connection) bool {
	p := bpf.RulePacket{Source: c.Src, Destination: c.Dst, Protocol: uint8(c.Protocol), HasPorts: c.Protocol.HasPorts()}
	for _, p.Interface = range d.interfaces {
		r, _, _ := d.table.Find(&p)
		if r == nil || r.Does() != bpf.TcRuleActionRULE_DROP {
			return false
		}
	}
	return true
}

// IPsec compiles IPsec policies, which are in the kernel's order. The table is empty if none
// refuses packets.
func IPsec(list []policy.IPsecPolicy) (t bpf.RuleTable, err error) {
	if len(list) > policy.MaxRules {
		return t, fmt.Errorf("%d IPsec policies exceed the limit of %d", len(list), policy.MaxRules)
	}
	refuses := false
	ipv6 := make([]bool, len(list))
	t.Rules = make([]bpf.TcRule, len(list))
	for i := range list {
		p := &list[i]
		t.Rules[i] = ipsecRule(p)
		refuses = refuses || p.Action != policy.IPsecAllow
		ipv6[i] = p.Destination.Addr().Is6()
	}
	if !refuses {
		return bpf.RuleTable{}, nil
	}
	_, err = buildTrees(&t, ipv6)
	return t, err
}

// ipsecRule returns a policy as a firewall rule, with its direction instead of an interface.
func ipsecRule(p *policy.IPsecPolicy) bpf.TcRule {
	row := rule(&policy.Rule{
		Source: p.Source, Destination: p.Destination, SourcePorts: p.SourcePorts, DestinationPorts: p.DestinationPorts, Protocol: p.Protocol,
	}, nil)
	row.Identity = 0
	row.First[bpf.TcRuleWordRULE_INTERFACE], row.Span[bpf.TcRuleWordRULE_INTERFACE] = uint32(bpf.TcIpsecDirectionIPSEC_OUT), 0
	if p.Forward {
		row.First[bpf.TcRuleWordRULE_INTERFACE] = uint32(bpf.TcIpsecDirectionIPSEC_FORWARD)
	}
	switch p.Action {
	case policy.IPsecRefuse:
		row.Action = uint8(bpf.TcRuleActionRULE_DROP)
	case policy.IPsecDecrypt:
		row.Action = uint8(bpf.TcRuleActionRULE_TRAP)
	}
	return row
}
