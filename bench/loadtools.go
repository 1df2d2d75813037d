package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"loxilb/test/netnstest"
)

// wrkName returns the name of the load in reports: wrk -t2 -c100.
func wrkName(args string) string { return "wrk " + args }

// wrk measures HTTP requests, over kept connections or a new one for each.
func wrk(keep bool) run {
	want := evenBalance
	if keep {
		want = everyEndpoint
	}
	return func(ctx context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
		if err := r.awaitBalanced(ctx, to); err != nil {
			return nil, err
		}
		if s.Warmup > 0 {
			if _, err := r.wrk(s.Wrk, keep, s.Warmup, to); err != nil {
				return nil, err
			}
		}
		out, err := r.counted(ctx, want, func() (sample, error) {
			text, err := r.wrk(s.Wrk, keep, s.Seconds, to)
			if err != nil {
				return sample{}, err
			}
			return parseWrk(text)
		})
		return []sample{out}, err
	}
}

// wrk runs wrk with these arguments for a time, over kept connections or a new one for each
// request, and returns its output.
func (r *rig) wrk(args string, keep bool, seconds float64, to netip.AddrPort) (string, error) {
	command := append([]string{"wrk"}, strings.Fields(args)...)
	if !keep {
		command = append(command, "-H", "Connection: close")
	}
	return r.load(append(command, "--latency", "--timeout", "3s", wrkDuration(seconds), "http://"+to.String()+"/")...)
}

// wrkDuration is wrk's flag for a duration, in whole seconds.
func wrkDuration(seconds float64) string { return "-d" + wholeSeconds(seconds) + "s" }

func wholeSeconds(seconds float64) string { return strconv.Itoa(int(math.Ceil(seconds))) }

// awaitBalanced sends requests until every endpoint has answered about equally often. It allows for
// random selection.
func (r *rig) awaitBalanced(ctx context.Context, to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client := r.source.HTTPClient(3 * time.Second)
	defer client.CloseIdleConnections()
	var counts []uint64
	for range 200 {
		resp, err := client.Get("http://" + to.String() + "/")
		if err != nil {
			return fmt.Errorf("send a request through the balancer: %w", err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 200 {
			return fmt.Errorf("send a request through the balancer: %s", resp.Status)
		}
		if counts, err = r.counts(ctx); err != nil {
			return err
		}
		if imbalance(counts, evenBalance) == "" {
			return nil
		}
	}
	return fmt.Errorf("the requests are not balanced: %s", imbalance(counts, evenBalance))
}

var (
	wrkTotal   = regexp.MustCompile(`(?m)^\s*(\d+) requests in`)
	wrkRate    = regexp.MustCompile(`(?m)^Requests/sec:\s+([\d.]+)`)
	wrkQuant   = regexp.MustCompile(`(?m)^\s+(50|99)%\s+([\d.]+)(us|ms|s)`)
	wrkSockets = regexp.MustCompile(`(?m)^\s*Socket errors: .*$`)
	wrkStatus  = regexp.MustCompile(`(?m)^\s*Non-2xx or 3xx responses: \d+`)
)

// parseWrk parses the output of wrk --latency. Socket errors and answers other than 200 invalidate
// the sample.
func parseWrk(text string) (sample, error) {
	s := sample{Details: map[string]float64{}}
	total, rate := wrkTotal.FindStringSubmatch(text), wrkRate.FindStringSubmatch(text)
	if total == nil || rate == nil {
		return s, fmt.Errorf("wrk printed %q", text)
	}
	var err1, err2 error
	s.Answers, err1 = strconv.ParseFloat(total[1], 64)
	s.Value, err2 = strconv.ParseFloat(rate[1], 64)
	if err := errors.Join(err1, err2); err != nil {
		return s, err
	}
	unit := map[string]float64{"us": 1, "ms": 1e3, "s": 1e6}
	for _, m := range wrkQuant.FindAllStringSubmatch(text, -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return s, err
		}
		s.Details["p"+m[1]+"_us"] = v * unit[m[3]]
	}
	for _, bad := range []string{wrkSockets.FindString(text), wrkStatus.FindString(text)} {
		if bad != "" {
			s.Invalid = strings.TrimSpace(bad)
		}
	}
	return s, nil
}

// iperfPort is iperf3's default port. Only one endpoint serves: the control connection and all
// streams must reach the same endpoint.
const iperfPort = 5201

func serveIperf(ctx context.Context, r *rig, h *netnstest.Host) error {
	return r.serveListening(ctx, h, iperfPort, "iperf3", "-s", "-p", strconv.Itoa(iperfPort))
}

// serveListening starts a server that prints nothing until a client connects. The server is ready
// once it listens on its port.
func (r *rig) serveListening(ctx context.Context, h *netnstest.Host, port int, args ...string) error {
	p, err := r.start(h, args...)
	if err != nil {
		return err
	}
	return until(ctx, func() error {
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended: %s", args[0], p.Output())
		default:
		}
		if listens(h, port) {
			return nil
		}
		return fmt.Errorf("%s does not listen", args[0])
	})
}

// listens reports whether some socket of a host listens on a TCP port.
func listens(h *netnstest.Host, port int) bool {
	found := false
	_ = h.Do(func() error {
		tables := readFile("/proc/thread-self/net/tcp") + readFile("/proc/thread-self/net/tcp6")
		found = listening(tables, port)
		return nil
	})
	return found
}

// iperfRun measures bulk transfer from the client over a number of streams. It sets Linux's default
// congestion control: an algorithm with pacing would measure timers.
func iperfRun(streams int) run {
	return func(ctx context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
		args := func(seconds float64) []string {
			return []string{"iperf3", "-c", to.Addr().String(), "-p", strconv.Itoa(int(to.Port())), "-P", strconv.Itoa(streams),
				"-C", "cubic", "-t", wholeSeconds(seconds), "-i", "0", "-J", "--connect-timeout", "3000"}
		}
		if s.Warmup > 0 {
			if err := r.iperf(ctx, args(s.Warmup), new(sample)); err != nil {
				return nil, err
			}
		}
		before, err := r.retransmissions()
		if err != nil {
			return nil, err
		}
		var out sample
		if err := r.iperf(ctx, args(s.Seconds), &out); err != nil {
			return nil, err
		}
		after, err := r.retransmissions()
		out.Retransmissions = after - before
		return []sample{out}, err
	}
}

// iperf runs the client. For 5 seconds it retries after errors: the server refuses a test while it
// ends the previous one.
func (r *rig) iperf(ctx context.Context, args []string, out *sample) error {
	wait, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return until(wait, func() (err error) {
		text, runErr := r.load(args...)
		*out, err = parseIperf(text)
		if err == nil {
			err = runErr
		}
		return err
	})
}

// segment is the payload of a packet at MTU 1500. Retransmissions are compared with the number of
// segments.
const segment = 1448

func parseIperf(text string) (sample, error) {
	var report struct {
		Error string `json:"error"`
		End   struct {
			Received struct {
				Bytes float64 `json:"bytes"`
				Rate  float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		return sample{}, fmt.Errorf("iperf3 printed %.200q: %w", text, err)
	}
	if report.Error != "" {
		return sample{}, fmt.Errorf("iperf3: %s", report.Error)
	}
	s := sample{Value: report.End.Received.Rate / 1e9, Answers: report.End.Received.Bytes / segment}
	if s.Value == 0 {
		s.Invalid = "nothing was received"
	}
	return s, nil
}

// qperf uses one port to agree on a test and another for the test's connection. Both must reach the
// same endpoint, so only one endpoint serves.
const (
	qperfPort     = 19765
	qperfDataPort = 19766
)

// serveQperf starts qperf's server. It uses the only congestion control that every kernel allows in
// a namespace: an algorithm with pacing would measure timers.
func serveQperf(ctx context.Context, r *rig, h *netnstest.Host) error {
	for _, end := range []*netnstest.Host{h, r.Client, r.LB} {
		if err := end.Sysctl("net/ipv4/tcp_congestion_control", "reno"); err != nil {
			return err
		}
	}
	return r.serveListening(ctx, h, qperfPort, "qperf", "--listen_port", strconv.Itoa(qperfPort))
}

// qperfRun runs a test of qperf and parses its report by parse. exchanged returns the number of
// answered packets.
func qperfRun(test string, parse func(string) (float64, error), exchanged func(value, seconds float64) float64) run {
	return func(ctx context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
		args := func(seconds float64) []string {
			return []string{"qperf", to.Addr().String(), "--listen_port", strconv.Itoa(int(to.Port())), "--ip_port", strconv.Itoa(qperfDataPort),
				"--unify_units", "--precision", "6", "--time", wholeSeconds(seconds), test}
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

// qperfExchanges converts a one-way latency in microseconds to a number of exchanges.
func qperfExchanges(value, seconds float64) float64 { return seconds * 1e6 / (2 * value) }

// qperfSegments converts a bandwidth in Gbit/s to a number of segments.
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

// qperfNumber extracts a number from the output of qperf --unify_units.
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
