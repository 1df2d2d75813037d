package routing

import (
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
)

// Audit compares the maps with the rows written by this process; with repair, it writes differing
// rows again.
func (r *Routing) Audit(repair bool) []report.Compared {
	r.mu.Lock()
	defer r.mu.Unlock()
	links := rows.Comparison[uint32, uint32]{Table: "links", Map: r.links, Want: r.kinds, Name: rows.Numbered[uint32]("interface")}
	routes := rows.Comparison[bpf.TcDefaultRoute, uint8]{
		Table: "default_routes", Map: r.routes, Want: r.defaults, Name: func(d bpf.TcDefaultRoute) string { return "the one by " + d.Gateway.Netip().String() },
	}
	generations := rows.Comparison[uint32, bpf.TcHopGenerations]{
		Table: "generations", Map: r.epochs.kept, Want: map[uint32]bpf.TcHopGenerations{0: {Routes: r.epochs.routes, Neighbours: r.epochs.neighbours}},
		Name: rows.Numbered[uint32]("row"),
	}
	variables := []rows.Variable{{Name: "next_hops_shared", In: r.shared, Want: r.sharing}}
	for _, v := range r.epochs.written {
		variables = append(variables, rows.Variable{Name: "hop_generation", In: v.routes, Want: r.epochs.routes},
			rows.Variable{Name: "neighbour_generation", In: v.neighbours, Want: r.epochs.neighbours})
	}
	return []report.Compared{links.Check(repair), routes.Check(repair), generations.Check(repair), rows.CheckVariables(repair, variables...)}
}
