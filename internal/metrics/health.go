package metrics

import (
	"bufio"
	"net/netip"
	"strconv"
	"time"

	"loxilb/internal/lb"
)

// healthFamily is one metric of all that is probed.
type healthFamily struct {
	name, kind, help string
	value            func(e *lb.EndpointHealth) (value string, known bool)
}

func healthFamilies() []healthFamily {
	count := func(n uint64) (string, bool) { return strconv.FormatUint(n, 10), true }
	return []healthFamily{
		{"loxilb_endpoint_up", "gauge", "1 of an endpoint that is up, 0 of one that is down and takes no new connections; none before its first probe has ended.",
			func(e *lb.EndpointHealth) (string, bool) {
				if e.State == lb.HealthUp {
					return "1", true
				}
				return "0", e.State == lb.HealthDown
			}},
		{"loxilb_endpoint_state_changes_total", "counter", "How often the state of the endpoint has become another one.",
			func(e *lb.EndpointHealth) (string, bool) { return count(e.Changes) }},
		{"loxilb_endpoint_probe_failures", "gauge", "Probes of the endpoint that have failed in a row.",
			func(e *lb.EndpointHealth) (string, bool) { return count(uint64(e.Failures)) }},
		{"loxilb_endpoint_probe_delay_seconds", "gauge", "How long the last successful probes have waited for their answer, on average.",
			func(e *lb.EndpointHealth) (string, bool) {
				return strconv.FormatFloat(float64(e.AvgDelay)/float64(time.Second), 'g', -1, 64), e.AvgDelay > 0
			}},
	}
}

// writeHealth writes the series of what is probed in the text format. They are of probes, which services share: which service heeds
// them, GET config/endpoint/all says.
func writeHealth(w *bufio.Writer, src Source) error {
	families := healthFamilies()
	lines := make([][]byte, len(families))
	for i, f := range families {
		lines[i] = []byte("# HELP " + f.name + " " + f.help + "\n# TYPE " + f.name + " " + f.kind + "\n")
	}
	for e := range src.Endpoints {
		at := e.Addr.String()
		if e.Probe.Port != 0 {
			at = netip.AddrPortFrom(e.Addr, e.Probe.Port).String()
		}
		labels := `{name="` + escape(e.Key()) + `",endpoint="` + at + `",probe="` + e.Probe.Type.String() + `"} `
		for i, f := range families {
			if v, known := f.value(e); known {
				lines[i] = append(append(append(append(lines[i], f.name...), labels...), v...), '\n')
			}
		}
	}
	for _, b := range lines {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}
