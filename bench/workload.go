package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"loxilb/test/netnstest"
)

// workload is a kind of measurement. Its unit is a rate, unless less is better.
type workload struct {
	name               string
	group              string // also selects it: crr for crr-1 and crr-50
	title              string
	unit               string
	less               bool     // less is better
	extra              bool     // measured along with another workload of its group, which has the run
	single             bool     // run one at a time: several would make CPUs wake each other
	packets            bool     // made of single packets: nothing for proxies and lo
	maxRetransmissions float64  // per answer, beyond those of plain routing
	onRequest          bool     // run only when it is named
	sparesCPU          bool     // clients and endpoints do not use the CPU of the generator
	defaults           []string // contenders if none is named; empty: all
	columns            []column // of its table, if it has more results than a rate
	service            service
	run                run
}

// run measures through an address of a rig's service. It may return more samples than the
// workload's own.
type run func(context.Context, *rig, setting, netip.AddrPort) ([]sample, error)

// One retransmission in 10,000 answers is far below a loss that affects a rate. Bulk transfer loses
// segments by design when TCP probes for bandwidth; half a percent does not slow it.
const (
	retransmissionsPerAnswer  = 1e-4
	retransmissionsPerSegment = 5e-3
)

// workloads returns the catalogue, in the order of reports.
func workloads(s setting) []workload {
	http := service{name: "http", protocol: "tcp", port: 80, target: 5001, serve: serves("http", 5001)}
	crr := service{name: "crr", protocol: "tcp", port: 81, target: 5003, serve: serves("crr", 5003)}
	rr := service{name: "rr", protocol: "tcp", port: 82, target: 5004, serve: serves("rr", 5004)}
	iperf := service{name: "iperf", protocol: "tcp", port: iperfPort, target: iperfPort, endpoints: 1, serve: serveIperf}
	qperf := service{name: "qperf", protocol: "tcp", port: qperfPort, target: qperfPort, tcp: qperfDataPort, endpoints: 1, serve: serveQperf}
	tcp := service{name: "echo", protocol: "tcp", port: 83, target: 5005, serve: serves("rr", 5005)}
	udp := service{name: "udp", protocol: "udp", port: 84, target: 5006, serve: noServer}
	held := udp
	held.held = heldConnections
	all := []workload{
		{name: "rps", title: "HTTP requests, kept connections (" + wrkName(s.Wrk) + ")", unit: "requests/s", service: http, run: wrk(true)},
		{name: "cps", title: "HTTP requests, a new connection each (" + wrkName(s.Wrk) + ")", unit: "requests/s", service: http, run: wrk(false)},
		{name: "crr-1", title: "connect, request, response, close: 1 stream" + cpuNote(s), unit: "exchanges/s", single: true, service: crr, run: exchange(1, false)},
		{name: "crr-50", title: "connect, request, response, close: 50 streams", unit: "exchanges/s", service: crr, run: exchange(50, false)},
		{name: "rr-1", title: "request, response over a kept connection: 1 stream" + cpuNote(s), unit: "exchanges/s", single: true, service: rr, run: exchange(1, true)},
		{name: "rr-50", title: "request, response over kept connections: 50 streams", unit: "exchanges/s", service: rr, run: exchange(50, true)},
		{name: "iperf-1", title: "iperf3, 1 stream, one endpoint", unit: "Gbit/s", service: iperf, run: iperfRun(1)},
		{name: "iperf-100", title: "iperf3, 100 streams, one endpoint", unit: "Gbit/s", service: iperf, run: iperfRun(100)},
		{name: "qperf-lat", title: "qperf tcp_lat, one endpoint: one way of a byte there and back" + cpuNote(s), unit: "us", single: true, less: true, service: qperf,
			run: qperfRun("tcp_lat", parseQperfLatency, qperfExchanges)},
		{name: "qperf-bw", title: "qperf tcp_bw: 1 stream, one endpoint", unit: "Gbit/s", service: qperf,
			run: qperfRun("tcp_bw", parseQperfBandwidth, qperfSegments)},
		{name: "pps-tcp", title: "smallest packets of 256 established TCP connections through one CPU", unit: "packets/s", packets: true, service: tcp, run: packetsTCP},
		{name: "pps-udp", title: "smallest packets of 256 UDP flows through one CPU", unit: "packets/s", packets: true, service: udp, run: packetsUDP},
		{name: "held-new", title: "new UDP connections through one CPU, until 1,000,000 are held", unit: "connections/s", packets: true, service: held, run: measureHeld},
		{name: "held-bytes", title: "kernel memory of each of 1,000,000 connections", unit: "bytes", packets: true, less: true, extra: true},
		{name: "held-pps", title: "packets of 256 connections, while 1,000,000 are held", unit: "packets/s", packets: true, extra: true},
		{name: "held-pps-all", title: "packets of all 1,000,000 in turn", unit: "packets/s", packets: true, extra: true},
	}
	all = append(all, protocolWorkloads(s)...)
	all = append(all, floodWorkloads()...)
	for i := range all {
		all[i].group, _, _ = strings.Cut(all[i].name, "-")
		all[i].maxRetransmissions = retransmissionsPerAnswer
		if strings.HasSuffix(all[i].unit, "bit/s") {
			all[i].maxRetransmissions = retransmissionsPerSegment
		}
	}
	return all
}

// cpuNote returns the end of a single stream's title: where it is measured.
func cpuNote(s setting) string {
	if s.Layout == "one" {
		return ", all on one CPU"
	}
	return ""
}

// workloadsNamed returns the workloads that the setting names, alone or by group, or all if it
// names none. Extras are part of their group.
func workloadsNamed(s setting) ([]workload, error) {
	all := workloads(s)
	for _, n := range s.Works {
		if !slices.ContainsFunc(all, func(w workload) bool { return !w.extra && (w.name == n || w.group == n) }) {
			return nil, fmt.Errorf("workload %q is unknown (allowed: %s)", n, list(all, func(w workload) string { return w.name }))
		}
	}
	return slices.DeleteFunc(all, func(w workload) bool {
		return w.extra || w.onRequest && len(s.Works) == 0 || len(s.Works) > 0 && !slices.Contains(s.Works, w.name) && !slices.Contains(s.Works, w.group)
	}), nil
}

// fits reports whether a contender can do a workload.
func (w workload) fits(c contender) bool {
	if c.floods && !w.onRequest {
		return false
	}
	if w.service.held > 0 && !slices.Contains([]string{baseline, "loxilb", "nft"}, c.name) {
		return false // one of each kind: it takes a minute, and onearm lacks the ports
	}
	return !w.packets || !c.proxy && !c.local
}

func serves(kind string, port int) func(context.Context, *rig, *netnstest.Host) error {
	return func(ctx context.Context, r *rig, h *netnstest.Host) error { return r.serve(ctx, h, kind, port) }
}

func noServer(context.Context, *rig, *netnstest.Host) error { return nil }

func list[T any](all []T, name func(T) string) string {
	var out []string
	for _, v := range all {
		out = append(out, name(v))
	}
	return strings.Join(out, ", ")
}

// counted runs f and adds the endpoints' answers and TCP's retransmissions meanwhile to its sample.
// The sample is invalid if the answers are not balanced as wanted.
func (r *rig) counted(ctx context.Context, want balance, f func() (sample, error)) (sample, error) {
	before, err := r.counts(ctx)
	if err != nil {
		return sample{}, err
	}
	retransmitted, err := r.retransmissions()
	if err != nil {
		return sample{}, err
	}
	s, err := f()
	if err != nil {
		return s, err
	}
	after, err := r.counts(ctx)
	if err != nil {
		return s, err
	}
	now, err := r.retransmissions()
	s.Retransmissions = now - retransmitted
	for i := range after {
		s.Endpoints = append(s.Endpoints, after[i]-before[i])
	}
	if s.Invalid == "" {
		s.Invalid = imbalance(s.Endpoints, want)
	}
	return s, err
}
