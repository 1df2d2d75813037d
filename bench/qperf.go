package main

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"

	"loxilb/test/netnstest"
)

// The ports of qperf: its own, where client and server agree on a test, and the one of the test's
// connection. One endpoint serves: both must meet there.
const (
	qperfPort     = 19765
	qperfDataPort = 19766
)

// serveQperf starts qperf's server. The congestion control is the only one that every kernel lets a
// namespace choose, whatever this machine prefers: one that paces its segments measures timers.
func serveQperf(ctx context.Context, r *rig, h *netnstest.Host) error {
	for _, end := range []*netnstest.Host{h, r.Client, r.LB} {
		if err := end.Sysctl("net/ipv4/tcp_congestion_control", "reno"); err != nil {
			return err
		}
	}
	return r.serveListening(ctx, h, qperfPort, "qperf", "--listen_port", strconv.Itoa(qperfPort))
}

// qperfRun measures by a test of qperf, whose report parse reads; exchanged is how many packets
// were answered in a time.
func qperfRun(test string, parse func(string) (float64, error), exchanged func(value, seconds float64) float64) run {
	return func(ctx context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
		args := func(seconds float64) []string {
			return []string{"qperf", to.Addr().String(), "--listen_port", strconv.Itoa(int(to.Port())), "--ip_port", strconv.Itoa(qperfDataPort),
				"--unify_units", "--precision", "6", "--time", whole(seconds), test}
		}
		if s.Warmup > 0 {
			if _, err := r.load(args(s.Warmup)...); err != nil {
				return nil, err
			}
		}
		before, err := r.retransmissions()
		if err != nil {
			return nil, err
		}
		text, err := r.load(args(s.Seconds)...)
		if err != nil {
			return nil, err
		}
		var out sample
		if out.Value, err = parse(text); err != nil {
			return nil, err
		}
		out.Answers = exchanged(out.Value, s.Seconds)
		after, err := r.retransmissions()
		out.Retransmissions = after - before
		return []sample{out}, err
	}
}

// qperfExchanges returns those of a latency in microseconds, which is of one way.
func qperfExchanges(value, seconds float64) float64 { return seconds * 1e6 / (2 * value) }

// qperfSegments are those of a bandwidth in Gbit/s.
func qperfSegments(value, seconds float64) float64 { return seconds * value * 1e9 / 8 / segment }

var (
	qperfLatency   = regexp.MustCompile(`(?m)^\s+latency\s+=\s+([\d.]+) ns$`)
	qperfBandwidth = regexp.MustCompile(`(?m)^\s+bw\s+=\s+([\d.]+) bytes/sec$`)
)

// parseQperfLatency returns microseconds.
func parseQperfLatency(text string) (float64, error) {
	ns, err := qperfNumber(qperfLatency, text)
	return ns / 1e3, err
}

// parseQperfBandwidth returns Gbit/s.
func parseQperfBandwidth(text string) (float64, error) {
	bytes, err := qperfNumber(qperfBandwidth, text)
	return bytes * 8 / 1e9, err
}

// qperfNumber finds what qperf --unify_units printed.
func qperfNumber(line *regexp.Regexp, text string) (float64, error) {
	m := line.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("qperf printed %q", text)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil || v == 0 {
		return 0, fmt.Errorf("qperf measured %q", m[1])
	}
	return v, nil
}
