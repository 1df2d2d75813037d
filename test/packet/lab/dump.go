package lab

import (
	"fmt"
	"time"

	"loxilb/internal/lb/report"
)

// slowHandshake is a duration of handshakes that no bucket boundary is near, at any usual rate of
// the kernel's clock.
const slowHandshake = 300 * time.Millisecond

// DumpHandshakes returns the results of handshakes as lines, for each endpoint that had some.
func (l *Lab) DumpHandshakes() ([]string, error) {
	var lines []string
	for _, key := range l.keys() {
		s, ok := l.Stats(key)
		if !ok {
			return nil, fmt.Errorf("the data path has no service %s", key)
		}
		for i, e := range l.services[key].Endpoints {
			h := &s.Endpoints[i].Handshakes
			if *h == (report.Handshakes{}) {
				continue
			}
			var slow uint64
			for bucket := 1; bucket < len(h.Answered); bucket++ {
				if report.HandshakeBound(bucket-1, l.Datapath.Jiffy()) > slowHandshake {
					slow += h.Answered[bucket]
				}
			}
			lines = append(lines, fmt.Sprintf("%s %s opened=%d answered=%d (%d late) repeated=%d refused=%d reset=%d unreachable=%d",
				key, e.AddrPort(), h.Opened, h.AllAnswered(), slow, h.Repeated, h.Refused, h.Reset, h.Unreachable))
		}
	}
	return lines, nil
}

// DumpLifetimes returns a line for each protocol with ended connections: their number, the sum of
// their durations, rounded to ten seconds, and their bytes.
func (l *Lab) DumpLifetimes() ([]string, error) {
	list, err := l.Datapath.Lifetimes()
	if err != nil {
		return nil, err
	}
	before := l.startLifetimes
	if before == nil {
		before = make([]report.Lifetimes, len(list))
	}
	var lines []string
	for i := range list {
		one, was := &list[i], &before[i]
		if one.In.Count() == was.In.Count() && one.Out.Count() == was.Out.Count() {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s lived=%d/%.0f0s in=%d/%d out=%d/%d", one.Protocol,
			one.Life.Count()-was.Life.Count(), float64(one.Life.Sum-was.Life.Sum)*report.LifeUnit/10,
			one.In.Count()-was.In.Count(), one.In.Sum-was.In.Sum, one.Out.Count()-was.Out.Count(), one.Out.Sum-was.Out.Sum))
	}
	return lines, nil
}

// DumpStats returns the counters of all services as lines, each service followed by its endpoints.
func (l *Lab) DumpStats() ([]string, error) {
	var lines []string
	for _, key := range l.keys() {
		s, ok := l.Stats(key)
		if !ok {
			return nil, fmt.Errorf("the data path has no service %s", key)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", key, formatStats(s.EndpointStats), formatRefusals(s.Refusals)))
		for i, e := range l.services[key].Endpoints {
			line := fmt.Sprintf("  %s %s", e.AddrPort(), formatStats(s.Endpoints[i]))
			if one := s.Endpoints[i].Refusals; one.Sum() > 0 {
				line += " " + formatRefusals(one)
			}
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// formatRefusals returns the number of packets refused for lack of an endpoint, and for each other
// reason that occurred.
func formatRefusals(r report.Refusals) string {
	text := fmt.Sprintf("no-endpoint=%d refused=%d", r[report.NoEndpoint], r.Sum()-r[report.NoEndpoint])
	r.Each(func(reason report.RefusalReason, n uint64) {
		if reason != report.NoEndpoint {
			text += fmt.Sprintf(" %s=%d", reason, n)
		}
	})
	return text
}

func formatStats(s report.EndpointStats) string {
	inactive := ""
	if s.Inactive > 0 {
		inactive = fmt.Sprintf(" inactive=%d", s.Inactive)
	}
	return fmt.Sprintf("connections=%d active=%d%s in=%d/%d out=%d/%d",
		s.Connections, s.Active, inactive, s.In.Packets, s.In.Bytes, s.Out.Packets, s.Out.Bytes)
}
