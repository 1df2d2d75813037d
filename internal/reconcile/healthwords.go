package reconcile

import (
	"net/netip"
	"slices"

	"loxilb/internal/health"
	"loxilb/internal/lb"
)

// hostWords are what agents have said of addresses that are probed. Of those that cover a target the last one holds.
type hostWords map[netip.Addr][]word

// word takes out what is probed at a port and by a type, or gives it back.
type word struct {
	port  uint16       // 0: any
	probe lb.ProbeType // ProbeAuto: any
	red   bool
}

// idleWords bounds the words of an address of which some cover nothing that is probed: a service may get its port back.
const idleWords = 64

func (w word) covers(port uint16, t lb.ProbeType) bool {
	return (w.port == 0 || w.port == port) && (w.probe == lb.ProbeAuto || w.probe == t || w.probe == t.Transport())
}

// red tells whether a target is to be out.
func (ws hostWords) red(t *health.Target) bool {
	for _, w := range slices.Backward(ws[t.Addr]) {
		if w.covers(t.Port, t.Probe.Type) {
			return w.red
		}
	}
	return false
}

// say adds a word of an address at which there are these targets. It takes the place of those that it covers.
func (ws hostWords) say(a netip.Addr, w word, there []*health.Target) {
	all := slices.DeleteFunc(ws[a], func(o word) bool { return w.covers(o.port, o.probe) })
	all = append(all, w)
	if len(all) > idleWords {
		all = slices.DeleteFunc(all, func(w word) bool {
			return !slices.ContainsFunc(there, func(t *health.Target) bool { return w.covers(t.Port, t.Probe.Type) })
		})
	}
	if slices.ContainsFunc(all, func(w word) bool { return w.red }) {
		ws[a] = all
	} else {
		delete(ws, a)
	}
}
