package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"loxilb/test/netnstest"
)

// iperfPort is iperf3's own. One endpoint serves: the control connection and all streams must meet
// at one.
const iperfPort = 5201

func serveIperf(ctx context.Context, r *rig, h *netnstest.Host) error {
	return r.serveListening(ctx, h, iperfPort, "iperf3", "-s", "-p", strconv.Itoa(iperfPort))
}

// serveListening starts a server that says nothing until somebody comes, and takes that for its
// client: it is there once it listens on its port.
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

// iperfRun measures bulk transfer from the client by a number of streams. The congestion control is
// the one that Linux comes with, whatever this machine prefers: one that paces its segments
// measures timers.
func iperfRun(streams int) run {
	return func(ctx context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
		args := func(seconds float64) []string {
			return []string{"iperf3", "-c", to.Addr().String(), "-p", strconv.Itoa(int(to.Port())), "-P", strconv.Itoa(streams),
				"-C", "cubic", "-t", whole(seconds), "-i", "0", "-J", "--connect-timeout", "3000"}
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

// iperf runs the client. A server that still ends the test before is busy, which it says: that is
// waited for.
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

// segment is what a packet of MTU 1500 carries: retransmissions are judged by the number of those.
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
