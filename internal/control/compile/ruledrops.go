package compile

import (
	"slices"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// Dropper finds the connections that firewall rules drop.
type Dropper struct {
	table      bpf.RuleTable
	interfaces []uint32 // that rules match on, and one that no rule matches on
}

// NewDropper looks through the rules. nil: they drop nothing.
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

// Drops reports whether packets of a connection's client are dropped, whatever interface they
// arrive at: that is not stored.
func (d *Dropper) Drops(c *lb.Connection) bool {
	p := bpf.RulePacket{Source: c.Src, Destination: c.Dst, Protocol: uint8(c.Protocol), HasPorts: c.Protocol == lb.TCP || c.Protocol == lb.UDP}
	for _, p.Interface = range d.interfaces {
		r, _, _ := d.table.Find(&p)
		if r == nil || r.Does() != bpf.TcRuleActionRULE_DROP {
			return false
		}
	}
	return true
}
