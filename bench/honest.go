package main

import (
	"context"
	"maps"
	"net/netip"
	"path/filepath"
	"strconv"
)

// honestWork is load of clients that mean no harm: they open a connection, ask, and close it, as
// fast as they can.
func honestWork() work {
	return work{
		name: "flood-honest", title: "honest load for twice as long: connect, request, response, close, 50 streams of " + strconv.Itoa(knownClients) + " addresses",
		unit: "connections/s", asked: true, columns: honestColumns(),
		usual:   []string{baseline, "loxilb", "loxilb-onearm", "loxilb-fullnat", "loxilb-hostonearm", "loxilb-dsr", "nft", "haproxy"},
		service: service{name: "crr", protocol: "tcp", port: 5005, target: 5005, udp: 5006, serve: serves("crr", 5005)}, run: honest,
	}
}

func honestColumns() []column {
	return []column{
		{"connections/s", number("")},
		{"refused", number("refused")},
		{"repeated", number("repeated")},
		{"time (min, p50, p99)", times3("")},
		{"table", share("table_percent")},
	}
}

// honestTimes is how much longer honest load lasts than a flood: ports and connections at rest pile
// up for 30 s.
const honestTimes = 2

// honest measures the rate, and counts whom the balancer refused.
func honest(ctx context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
	w, err := r.watch(ctx, r.observe)
	if err != nil {
		return nil, err
	}
	out, err := r.counted(ctx, true, func() (sample, error) {
		return honestReport(r.load(filepath.Join(r.bin, "bench"), "crr", "-streams", "50", "-sources", strconv.Itoa(knownClients),
			"-seconds", strconv.FormatFloat(honestTimes*s.Seconds, 'f', -1, 64), to.String()))
	})
	details, failed := w.end()
	if err != nil {
		return nil, err
	}
	maps.Copy(out.Details, details)
	out.Details["repeated"] = float64(out.Retransmissions)
	return []sample{out}, failed
}

// honestReport counts failures; they do not make the sample worthless, as they are what it is
// about.
func honestReport(text string, err error) (sample, error) {
	r, err := parseExchanges(text, err)
	if err != nil {
		return sample{}, err
	}
	return sample{Value: r.Rate, Details: map[string]float64{
		"refused": float64(r.Errors), "min_us": r.Min, "p50_us": r.P50, "p99_us": r.P99,
	}}, nil
}
