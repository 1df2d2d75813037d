package routing

import (
	"loxilb/internal/kernel/datapath/audit"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// Audit compares the maps with what the process has written there; with mend, rows that differ are
// written again.
func (r *Routing) Audit(mend bool) []lb.Compared {
	r.mu.Lock()
	defer r.mu.Unlock()
	links := audit.Sheet[uint32, uint32]{Table: "links", Map: r.links, Want: r.kinds, Name: audit.Number[uint32]("interface")}
	want := make(map[bpf.TcDefaultRoute]uint8, len(r.defaults))
	for route := range r.defaults {
		want[route] = 1
	}
	routes := audit.Sheet[bpf.TcDefaultRoute, uint8]{
		Table: "default_routes", Map: r.routes, Want: want, Name: func(d bpf.TcDefaultRoute) string { return "the one by " + d.Gateway.Netip().String() },
	}
	generations := audit.Sheet[uint32, bpf.TcHopGenerations]{
		Table: "generations", Map: r.epochs.kept, Want: map[uint32]bpf.TcHopGenerations{0: {Routes: r.epochs.routes, Neighbours: r.epochs.neighbours}},
		Name: audit.Number[uint32]("row"),
	}
	variables := []audit.Variable{{Name: "next_hops_shared", In: r.shared, Want: r.sharing}}
	for _, v := range r.epochs.written {
		variables = append(variables, audit.Variable{Name: "hop_generation", In: v.routes, Want: r.epochs.routes},
			audit.Variable{Name: "neighbour_generation", In: v.neighbours, Want: r.epochs.neighbours})
	}
	return []lb.Compared{links.Check(mend), routes.Check(mend), generations.Check(mend), audit.Variables(mend, variables...)}
}
