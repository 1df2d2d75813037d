package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// wrkName is how reports call the load: wrk -t2 -c100.
func wrkName(args string) string { return "wrk " + args }

// wrk measures HTTP requests, over kept connections or a new one for each.
func wrk(keep bool) run {
	return func(ctx context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
		args := append([]string{"wrk"}, strings.Fields(s.Wrk)...)
		if !keep {
			args = append(args, "-H", "Connection: close")
		}
		args = append(args, "--latency", "--timeout", "3s")
		url := "http://" + to.String() + "/"
		if err := r.balances(ctx, to); err != nil {
			return nil, err
		}
		if s.Warmup > 0 {
			if _, err := r.load(append(args, wrkDuration(s.Warmup), url)...); err != nil {
				return nil, err
			}
		}
		out, err := r.counted(ctx, !keep, func() (sample, error) {
			text, err := r.load(append(args, wrkDuration(s.Seconds), url)...)
			if err != nil {
				return sample{}, err
			}
			return parseWrk(text)
		})
		return []sample{out}, err
	}
}

// wrkDuration is wrk's flag for a duration, which it knows in whole seconds.
func wrkDuration(seconds float64) string { return "-d" + whole(seconds) + "s" }

func whole(seconds float64) string { return strconv.Itoa(int(math.Ceil(seconds))) }

// balances asks until every endpoint has answered, as many times as chance may take.
func (r *rig) balances(ctx context.Context, to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ask := r.source.HTTPClient(3 * time.Second)
	defer ask.CloseIdleConnections()
	var counts []uint64
	for range 200 {
		resp, err := ask.Get("http://" + to.String() + "/")
		if err != nil {
			return fmt.Errorf("ask through it: %w", err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 200 {
			return fmt.Errorf("ask through it: %s", resp.Status)
		}
		if counts, err = r.counts(ctx); err != nil {
			return err
		}
		if usedAll(counts, true) == "" {
			return nil
		}
	}
	return fmt.Errorf("it does not balance: %s", usedAll(counts, true))
}

var (
	wrkTotal   = regexp.MustCompile(`(?m)^\s*(\d+) requests in`)
	wrkRate    = regexp.MustCompile(`(?m)^Requests/sec:\s+([\d.]+)`)
	wrkQuant   = regexp.MustCompile(`(?m)^\s+(50|99)%\s+([\d.]+)(us|ms|s)`)
	wrkSockets = regexp.MustCompile(`(?m)^\s*Socket errors: .*$`)
	wrkStatus  = regexp.MustCompile(`(?m)^\s*Non-2xx or 3xx responses: \d+`)
)

// parseWrk reads what wrk --latency prints. Answers other than 200 and errors of sockets make the
// sample invalid.
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
