package policy

import (
	"fmt"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
)

// Audit compares the maps with the rows written by this process; with repair, it writes differing
// rows again. For policers it compares the settings, not the content of their buckets.
func (a *Attached) Audit(repair bool) []report.Compared {
	a.mu.Lock()
	defer a.mu.Unlock()
	policers := rows.Comparison[uint64, bpf.TcPolicer]{
		Table: "policers", Map: a.maps.Policers, Want: a.policers, Name: a.nameOf,
		Mask: func(p *bpf.TcPolicer) { p.Empty, p.PeakEmpty, p.Excess = 0, 0, 0 },
		Put: func(key uint64, want bpf.TcPolicer) error {
			if want == (bpf.TcPolicer{}) {
				return a.maps.Policers.Delete(key)
			}
			delete(a.policers, key) // the row is not as recorded
			return a.putPolicer(key, want)
		},
	}
	mirrors := rows.Comparison[uint64, bpf.TcMirror]{Table: "mirrors", Map: a.maps.Mirrors, Want: a.mirrors, Name: a.nameOf}
	sources := rows.Comparison[bpf.TcAttachedSource, bpf.TcAttachments]{
		Table: "attached_sources", Map: a.maps.AttachedSources, Want: a.sources,
		Name: func(k bpf.TcAttachedSource) string {
			return fmt.Sprintf("%s, %d bits,", k.Addr.Netip(), k.PrefixLength)
		},
	}
	ports := rows.Comparison[uint32, bpf.TcAttachments]{Table: "attached_ports", Map: a.maps.AttachedPorts, Want: a.ports, Name: rows.Numbered[uint32]("interface")}
	variables := []rows.Variable{{Name: "flows_attached", In: a.flows, Want: a.flowsSet}}
	for _, v := range a.counted {
		variables = append(variables, rows.Variable{Name: "ports_attached", In: v, Want: uint32(len(a.ports))})
	}
	return []report.Compared{policers.Check(repair), mirrors.Check(repair), sources.Check(repair), ports.Check(repair), rows.CheckVariables(repair, variables...)}
}

// nameOf returns the name of a policer or a mirror.
func (a *Attached) nameOf(key uint64) string {
	if name, ok := a.names[key]; ok {
		return name
	}
	return fmt.Sprintf("number %d, which is unused,", key)
}
