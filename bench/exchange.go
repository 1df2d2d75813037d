package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/bench/crr"
)

// exchange measures requests and responses of one byte. Each exchange has its own connection; with
// keep, a stream uses one connection for all of its exchanges.
func exchange(streams int, keep bool) run {
	return func(ctx context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
		program := []string{filepath.Join(r.bin, "bench"), "crr", "-sctp=" + strconv.FormatBool(r.service.protocol == "sctp")}
		args := append(slices.Clone(program), "-streams", strconv.Itoa(streams), "-keep="+strconv.FormatBool(keep))
		// The warm-up has enough streams to use all endpoints even if they are chosen at random.
		warm, err := r.counted(ctx, everyEndpoint, func() (sample, error) {
			return exchangeReport(r.load(append(slices.Clone(program), "-streams", strconv.Itoa(max(streams, 30)),
				"-keep="+strconv.FormatBool(keep), "-seconds", fmt.Sprint(max(s.Warmup, 0.1)), to.String())...))
		})
		if err != nil {
			return nil, err
		}
		if warm.Invalid != "" {
			return nil, fmt.Errorf("the connections are not balanced: %s", warm.Invalid)
		}
		want := evenBalance
		if keep {
			want = everyEndpoint
			if streams == 1 {
				want = anyEndpoint
			}
		}
		out, err := r.counted(ctx, want, func() (sample, error) {
			return exchangeReport(r.load(append(args, "-seconds", fmt.Sprint(s.Seconds), to.String())...))
		})
		return []sample{out}, err
	}
}

func exchangeReport(text string, err error) (sample, error) {
	r, err := parseExchanges(text, err)
	if err != nil {
		return sample{}, err
	}
	s := sample{Value: r.Rate, Answers: float64(r.Exchanges), Details: map[string]float64{
		"min_us": r.Min, "mean_us": r.Mean, "p50_us": r.P50, "p99_us": r.P99,
	}}
	if r.Errors > 0 {
		s.Invalid = fmt.Sprintf("%d of %d exchanges failed: %s", r.Errors, r.Errors+r.Exchanges, r.FirstErr)
	}
	return s, nil
}

func parseExchanges(text string, err error) (r crr.Report, _ error) {
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("crr printed %q: %w", text, err)
	}
	return r, nil
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// crrMain runs `bench crr [flags] ADDRESS:PORT`: it makes the load and prints a report as JSON.
func crrMain(args []string) error {
	flags := flag.NewFlagSet("crr", flag.ContinueOnError)
	streams := flags.Int("streams", 1, "number of concurrent exchanges")
	keep := flags.Bool("keep", false, "keep one connection for each stream")
	seconds := flags.Float64("seconds", 3, "duration in seconds")
	sctp := flags.Bool("sctp", false, "use the kernel's SCTP instead of TCP")
	sources := flags.Int("sources", 0, "number of client addresses, which streams use in turn")
	if err := flags.Parse(args); err != nil {
		return err
	}
	to, err := netip.ParseAddrPort(flags.Arg(0))
	if err != nil {
		return fmt.Errorf("usage: bench crr [flags] ADDRESS:PORT: %w", err)
	}
	load := crr.Load{
		Address: to, Streams: *streams, Keep: *keep, Duration: duration(*seconds),
		Sources: clientAddresses(to.Addr().Is6(), *sources),
	}
	if *sctp {
		load.Protocol = unix.IPPROTO_SCTP
	}
	report := load.Run()
	return json.NewEncoder(os.Stdout).Encode(report)
}
