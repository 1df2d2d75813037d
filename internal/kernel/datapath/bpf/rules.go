package bpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"loxilb/internal/lb/policy"
)

// Sizes of a set of rules.
const (
	RuleWords = int(TcRuleWordRULE_WORDS)
	RuleDepth = int(TcRuleLimitRULE_DEPTH)
)

// RuleTable has all firewall rules in the layout of the data path, before counters are assigned.
// Package compile makes it, and datapath writes it.
type RuleTable struct {
	Rules   []TcRule // in the order in which they count
	Nodes   []TcRuleNode
	Entries []uint16        // of leaves: indices into Rules
	Trees   [2][]TcRuleTree // of IPv4, and of IPv6
	Sources []netip.Addr    // source addresses of connections: the targets of rules are indices here, until datapath replaces them by the endpoints that stand for them
}

// Equal reports whether both tables handle all packets equally.
func (t *RuleTable) Equal(o *RuleTable) bool {
	return slices.Equal(t.Rules, o.Rules) && slices.Equal(t.Sources, o.Sources) && slices.Equal(t.Nodes, o.Nodes) && slices.Equal(t.Entries, o.Entries) &&
		slices.Equal(t.Trees[0], o.Trees[0]) && slices.Equal(t.Trees[1], o.Trees[1])
}

// Does returns a rule's action, without its flags.
func (r *TcRule) Does() TcRuleAction { return TcRuleAction(r.Action &^ uint8(TcRuleActionRULE_RECORD)) }

// IsSNAT reports whether a rule gives connections another source.
func (r *TcRule) IsSNAT() bool {
	return r.Does() == TcRuleActionRULE_SNAT || r.Does() == TcRuleActionRULE_SNAT_DEFAULT
}

// Set returns the table in the layout of the map.
func (t *RuleTable) Set() *TcRuleSet {
	set := &TcRuleSet{Count: uint32(len(t.Rules))}
	for i := range t.Rules {
		if t.Rules[i].Span[TcRuleWordRULE_INTERFACE] == 0 {
			set.Interfaces++
		}
	}
	copy(set.Rules[:], t.Rules)
	copy(set.Nodes[:], t.Nodes)
	copy(set.Entries[:], t.Entries)
	for version, trees := range t.Trees {
		set.Trees[version].Count = uint32(len(trees))
		copy(set.Trees[version].Tree[:], trees)
	}
	return set
}

// RulePacket has the properties that rules match.
type RulePacket struct {
	Source, Destination netip.AddrPort // ports are valid iff HasPorts
	HasPorts            bool
	Protocol            uint8
	Interface           uint32
}

func (p *RulePacket) words() (w [16]uint32) {
	for i, a := range [...]netip.AddrPort{p.Source, p.Destination} {
		b := a.Addr().As16()
		for j := range 4 {
			w[4*i+j] = binary.BigEndian.Uint32(b[4*j:])
		}
		w[int(TcRuleWordRULE_SPORT)+i] = uint32(TcRuleWordRULE_NO_PORT)
		if p.HasPorts {
			w[int(TcRuleWordRULE_SPORT)+i] = uint32(a.Port())
		}
	}
	w[TcRuleWordRULE_PROTOCOL], w[TcRuleWordRULE_INTERFACE] = uint32(p.Protocol), p.Interface
	return w
}

// Find is rule_search() of bpf/rules/rule.h. It returns the first rule that matches a packet, or
// nil, and the number of visited nodes and rules.
func (t *RuleTable) Find(p *RulePacket) (found *TcRule, nodes, rules int) {
	w := p.words()
	best := uint16(len(t.Rules))
	version := 0
	if p.Source.Addr().Is6() {
		version = 1
	}
	for _, tree := range t.Trees[version] {
		if tree.First >= uint32(best) {
			break
		}
		n := &t.Nodes[tree.Root]
		for nodes++; n.Bits != 0; nodes++ {
			n = &t.Nodes[n.Base+w[n.Word]>>n.Shift&(1<<n.Bits-1)]
		}
		for _, id := range t.Entries[n.Base : n.Base+uint32(n.Word)] {
			if id >= best {
				break
			}
			if rules++; t.Rules[id].matches(&w) {
				best = id
				break
			}
		}
	}
	if int(best) == len(t.Rules) {
		return nil, nodes, rules
	}
	return &t.Rules[best], nodes, rules
}

func (r *TcRule) matches(w *[16]uint32) bool {
	for i := range r.First {
		if w[i]-r.First[i] > r.Span[i] {
			return false
		}
	}
	return true
}

// Cost returns the maximum number of nodes and rules that a packet can visit: the deepest path and
// the longest list of each tree.
func (t *RuleTable) Cost() (most policy.RuleCost) {
	for _, trees := range t.Trees {
		var sum policy.RuleCost
		for _, tree := range trees {
			c := t.costBelow(tree.Root)
			sum.Nodes += c.Nodes
			sum.Rules += c.Rules
		}
		most.Nodes, most.Rules = max(most.Nodes, sum.Nodes), max(most.Rules, sum.Rules)
	}
	return most
}

func (t *RuleTable) costBelow(i uint32) (most policy.RuleCost) {
	n := &t.Nodes[i]
	if n.Bits == 0 {
		return policy.RuleCost{Nodes: 1, Rules: int(n.Word)}
	}
	for child := range uint32(1) << n.Bits {
		c := t.costBelow(n.Base + child)
		most.Nodes, most.Rules = max(most.Nodes, c.Nodes), max(most.Rules, c.Rules)
	}
	most.Nodes++
	return most
}

// String prints the rules as ranges of words, and the trees with the rules of their leaves.
func (t RuleTable) String() string {
	var b strings.Builder
	for i := range t.Rules {
		r := &t.Rules[i]
		fmt.Fprintf(&b, "rule %d", i)
		for w := range r.First {
			switch first, last := r.First[w], r.First[w]+r.Span[w]; {
			case r.Span[w] == ^uint32(0):
			case first == last:
				fmt.Fprintf(&b, " %s=%x", ruleWord(w), first)
			default:
				fmt.Fprintf(&b, " %s=%x-%x", ruleWord(w), first, last)
			}
		}
		fmt.Fprintf(&b, " action=%d mark=%d target=%d\n", r.Action, r.Mark, r.Target)
	}
	for version, trees := range t.Trees {
		for _, tree := range trees {
			fmt.Fprintf(&b, "tree of IPv%d first=%d\n", 4+2*version, tree.First)
			t.writeNode(&b, tree.Root, "  ")
		}
	}
	return b.String()
}

func (t *RuleTable) writeNode(b *strings.Builder, i uint32, indent string) {
	n := &t.Nodes[i]
	if n.Bits == 0 {
		fmt.Fprintf(b, "%srules %d\n", indent, t.Entries[n.Base:n.Base+uint32(n.Word)])
		return
	}
	fmt.Fprintf(b, "%s%s bits %d to %d\n", indent, ruleWord(int(n.Word)), n.Shift, n.Shift+n.Bits-1)
	for child := range uint32(1) << n.Bits {
		t.writeNode(b, n.Base+child, indent+"  ")
	}
}

func ruleWord(w int) string {
	switch {
	case w < int(TcRuleWordRULE_DADDR):
		return fmt.Sprintf("source.%d", w)
	case w < int(TcRuleWordRULE_SPORT):
		return fmt.Sprintf("destination.%d", w-int(TcRuleWordRULE_DADDR))
	}
	return [...]string{"sport", "dport", "protocol", "interface"}[w-int(TcRuleWordRULE_SPORT)]
}
