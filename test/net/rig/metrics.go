package rig

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// ReportHostState reports the state of the probed endpoints at an address, as an agent does.
func (r *Rig) ReportHostState(address, state string) {
	r.T.Helper()
	resp, err := r.LB.HTTPClient(Patience).Post("http://127.0.0.1:11111/netlox/v1/config/endpointhoststate", "application/json",
		strings.NewReader(fmt.Sprintf(`{"hostName":%q,"state":%q}`, address, state)))
	if err != nil {
		r.T.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // of a test
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		r.T.Fatalf("%s is %s: %s %s, %v", address, state, resp.Status, body, err)
	}
}

// Metrics fetches the Prometheus page.
func (r *Rig) Metrics() (string, error) {
	resp, err := r.LB.HTTPClient(Patience).Get("http://127.0.0.1:11111/netlox/v1/metrics")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// Metric returns the value of the first series with the given name, without the prefix "loxilb_",
// and labels, written as k=v. Counters count from the start of the test.
func (r *Rig) Metric(name string, labels ...string) float64 {
	r.T.Helper()
	page, err := r.Metrics()
	if err != nil {
		r.T.Fatal(err)
	}
	v, found := r.findMetric(page, name, labels)
	if !found {
		r.T.Fatalf("no %s of %v in the metrics:\n%s", name, labels, page)
	}
	return v
}

// EventuallyMetric waits until a series exists and has at least the given value.
func (r *Rig) EventuallyMetric(least float64, name string, labels ...string) {
	r.T.Helper()
	labtest.Eventually(r.T, Patience, func(context.Context) error {
		page, err := r.Metrics()
		if err != nil {
			return err
		}
		if v, found := r.findMetric(page, name, labels); !found || v < least {
			return fmt.Errorf("%s of %v is %v (%t), not at least %v", name, labels, v, found, least)
		}
		return nil
	})
}

// findMetric finds a series in a page of metrics. It subtracts a counter's value at the start of
// the test, unless the daemon was restarted.
func (r *Rig) findMetric(page, name string, labels []string) (v float64, found bool) {
	r.T.Helper()
	v, found = r.findSeries(page, name, labels)
	if found && strings.HasSuffix(name, "_total") && r.Daemon.Process == r.startProcess {
		before, _ := r.findSeries(r.startMetrics, name, labels)
		v -= before
	}
	return v, found
}

// findSeries finds a series in a page of metrics.
func (r *Rig) findSeries(page, name string, labels []string) (v float64, there bool) {
	r.T.Helper()
	for line := range strings.Lines(page) {
		at := strings.LastIndexByte(line, ' ')
		series, value := line[:max(at, 0)], strings.TrimSpace(line[at+1:])
		if series != "loxilb_"+name && !strings.HasPrefix(series, "loxilb_"+name+"{") {
			continue
		}
		missing := slices.ContainsFunc(labels, func(l string) bool {
			k, v, _ := strings.Cut(l, "=")
			return l != "" && !strings.Contains(series, fmt.Sprintf("%s=%q", k, v))
		})
		if missing {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			r.T.Fatal(err)
		}
		return v, true
	}
	return 0, false
}

// sumOfSeries returns the sum of all series with the given name.
func sumOfSeries(page, name string) (sum float64) {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "loxilb_"+name+"{") {
			v, _ := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
			sum += v
		}
	}
	return sum
}

// EventuallyShows repeats a command until it prints a line with all of these words.
func (r *Rig) EventuallyShows(line string, words ...string) {
	r.T.Helper()
	labtest.Eventually(r.T, Patience, func(context.Context) error {
		out, err := r.Command(strings.Fields(line)...)
		if err != nil {
			return err
		}
		for one := range strings.Lines(out) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(one, w) }) {
				return nil
			}
		}
		return fmt.Errorf("no line has %q: %s", words, out)
	})
}

// WantActive waits until the endpoints of the service at vip have these numbers of active
// connections.
func (r *Rig) WantActive(vip string, want ...float64) {
	r.T.Helper()
	labtest.Eventually(r.T, 40*time.Second, func(context.Context) error {
		var got []float64
		for _, n := range netnstest.StandardNetworks()[1:] {
			got = append(got, r.Metric("endpoint_connections_active", "endpoint="+Join(n.V4.Addr().String(), 7), "service="+vip))
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s: active connections are %v, want %v", vip, got, want)
		}
		return nil
	})
}

// WantNoDrops fails the test if any packet was dropped.
func (r *Rig) WantNoDrops() {
	r.T.Helper()
	page, err := r.Metrics()
	if err != nil {
		r.T.Fatal(err)
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "loxilb_drops_total{") && !strings.HasSuffix(strings.TrimSpace(line), " 0") && !strings.Contains(r.startMetrics, line) {
			r.T.Errorf("dropped: %s", line)
		}
	}
}
