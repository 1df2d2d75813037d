package reconcile

import (
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/control/health"
	"loxilb/internal/lb"
)

// hostWords are what agents have said of addresses that are probed. Of those that cover a target the last one holds.
type hostWords map[netip.Addr][]word

// word takes out what is probed at a port and by a type, or gives it back.
type word struct {
	port  uint16       // 0: any
	probe lb.ProbeType // ProbeAuto: any
	red   bool
	since time.Time // when it was said first
}

// idleWords bounds the words of an address of which some cover nothing that is probed: a service may get its port back.
const idleWords = 64

func (w word) covers(port uint16, t lb.ProbeType) bool {
	return (w.port == 0 || w.port == port) && (w.probe == lb.ProbeAuto || w.probe == t || w.probe == t.Transport())
}

// red tells whether a target is to be out, and since when.
func (ws hostWords) red(t *health.Target) (since time.Time, red bool) {
	for _, w := range slices.Backward(ws[t.Addr]) {
		if w.covers(t.Port, t.Probe.Type) {
			return w.since, w.red
		}
	}
	return since, false
}

// say adds a word of an address at which there are these targets. It takes the place of those that it covers, and says nothing new if it
// is the last one of them.
func (ws hostWords) say(a netip.Addr, w word, there []*health.Target) {
	since := w.since
	all := slices.DeleteFunc(ws[a], func(o word) bool {
		if !w.covers(o.port, o.probe) {
			return false
		}
		since = w.since
		if o.port == w.port && o.probe == w.probe && o.red == w.red {
			since = o.since
		}
		return true
	})
	w.since = since
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

// portOf is an endpoint as a word has it that names its port, of a service whose probe asks no port.
func portOf(s *lb.Service, e lb.Endpoint) *health.Target {
	kind := lb.ProbeTCP
	if s.Protocol != lb.TCP {
		kind = lb.ProbeUDP
	}
	return &health.Target{Addr: e.Addr, Port: e.Port, Probe: lb.Probe{Type: kind}}
}

// notePortless enters a service whose probe asks no port, or takes it away.
func (p *probes) notePortless(c wishChange) {
	s := c.service
	switch {
	case c.by > 0 && s.Monitored() && (s.Protocol == lb.TCP || s.Protocol == lb.UDP) &&
		slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool { return s.ProbeOf(e).Port == 0 }):
		p.portless[s.Key] = s
	case c.by < 0 && p.portless[s.Key] == s:
		delete(p.portless, s.Key)
	}
}

// portRed tells whether an agent has taken an endpoint out by its port, of which its probe knows nothing, and since when.
func (p *probes) portRed(s *lb.Service, e lb.Endpoint) (since time.Time, red bool) {
	if p.portless[s.Key] == nil {
		return since, false
	}
	return p.words.red(portOf(s, e))
}

// byPort are the services without ports in their probes that have endpoints which a word covers by their port, and these endpoints.
func (p *probes) byPort(a netip.Addr, w word) (services []lb.Key, there []*health.Target) {
	for key, s := range p.portless {
		for _, e := range s.Endpoints {
			if t := portOf(s, e); e.Addr == a && w.port == e.Port && w.covers(t.Port, t.Probe.Type) {
				services, there = append(services, key), append(there, t)
			}
		}
	}
	return services, there
}
