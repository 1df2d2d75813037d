package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// observation is a balancer's report of its connection table and drops.
type observation struct {
	used, limit float64 // connections; 0: no table
	drops       map[string]float64
}

// percent returns how full the table is.
func (o observation) percent() float64 {
	if o.limit == 0 {
		return 0
	}
	return 100 * o.used / o.limit
}

// An observer queries a contender, in the balancer's namespace.
type observer func(context.Context, *rig) (observation, error)

// observeLoxilb reads the daemon's metrics.
func observeLoxilb(ctx context.Context, r *rig) (o observation, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:11111/netlox/v1/metrics", nil)
	if err != nil {
		return o, err
	}
	client := r.LB.HTTPClient(5 * time.Second)
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return o, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return o, err
	}
	return parseMetrics(string(text))
}

// observeDirect observes mode dsr, whose connections have one entry instead of two.
func observeDirect(ctx context.Context, r *rig) (observation, error) {
	o, err := observeLoxilb(ctx, r)
	o.used /= 2
	return o, err
}

// parseMetrics finds the table and the drops among metrics.
func parseMetrics(text string) (o observation, err error) {
	o.drops = map[string]float64{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		var to *float64
		reason, isDrop := strings.CutPrefix(name, `loxilb_drops_total{reason="`)
		switch {
		case name == "loxilb_connections":
			to = &o.used
		case name == "loxilb_connections_max":
			to = &o.limit
		case !isDrop:
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return o, fmt.Errorf("the metric %s is %q: %w", name, value, err)
		}
		if isDrop {
			o.drops[strings.TrimSuffix(reason, `"}`)] = n
		} else {
			*to = n
		}
	}
	if o.limit == 0 {
		return o, fmt.Errorf("the metrics do not contain the size of the table")
	}
	return o, nil
}

// observeConntrack reads the occupancy of the kernel's table and its per-CPU counters.
func observeConntrack(_ context.Context, r *rig) (o observation, err error) {
	err = r.LB.Do(func() error {
		for name, to := range map[string]*float64{"nf_conntrack_count": &o.used, "nf_conntrack_max": &o.limit} {
			b, err := os.ReadFile("/proc/sys/net/netfilter/" + name)
			if err != nil {
				return err
			}
			if *to, err = strconv.ParseFloat(strings.TrimSpace(string(b)), 64); err != nil {
				return err
			}
		}
		o.drops, err = parseConntrackStat(readFile("/proc/thread-self/net/stat/nf_conntrack"))
		return err
	})
	return o, err
}

// parseConntrackStat sums the columns that count drops: a line of names, then a line of hexadecimal
// numbers for each CPU.
func parseConntrackStat(text string) (map[string]float64, error) {
	out := map[string]float64{}
	var names []string
	for line := range strings.Lines(text) {
		if names == nil {
			names = strings.Fields(line)
			continue
		}
		for i, v := range strings.Fields(line) {
			if i >= len(names) || names[i] != "drop" && names[i] != "early_drop" && names[i] != "insert_failed" && names[i] != "invalid" {
				continue
			}
			n, err := strconv.ParseUint(v, 16, 64)
			if err != nil {
				return nil, fmt.Errorf("read conntrack's counters: %w", err)
			}
			out["conntrack-"+strings.ReplaceAll(names[i], "_", "-")] += float64(n)
		}
	}
	return out, nil
}

// observeKernel reads the refusals of the balancer's own sockets.
func observeKernel(_ context.Context, r *rig) (o observation, err error) {
	o.drops = map[string]float64{}
	err = r.LB.Do(func() error {
		text := readFile("/proc/thread-self/net/netstat")
		for _, name := range []string{"ListenDrops", "SyncookiesSent", "SyncookiesFailed"} {
			n, err := snmp(text, "TcpExt", name)
			if err != nil {
				return err
			}
			o.drops[name] = float64(n)
		}
		return nil
	})
	return o, err
}

// watch observes repeatedly until it is stopped, and keeps the fullest table and the last counters.
// A failed observation on a machine under load is repeated.
type watch struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu          sync.Mutex
	first, last observation
	peak        float64   // percent
	full        time.Time // when it was seen last to have no room
	err         error
}

// fullFrom is the percentage from which a table counts as full.
const fullFrom = 99

func (r *rig) watch(ctx context.Context, see observer) (*watch, error) {
	w := new(watch)
	if w.first, w.err = see(ctx, r); w.err != nil {
		return nil, w.err
	}
	w.record(w.first, nil)
	ctx, w.stop = context.WithCancel(ctx)
	w.done.Go(func() {
		for tick := time.NewTicker(200 * time.Millisecond); ; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return
			}
			o, err := see(ctx, r)
			if ctx.Err() == nil {
				w.record(o, err)
			}
		}
	})
	return w, nil
}

func (w *watch) record(o observation, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	if err != nil {
		return
	}
	w.last, w.peak = o, max(w.peak, o.percent())
	if o.percent() >= fullFrom {
		w.full = time.Now()
	}
}

// lastFull returns when the table was last seen full, if after a time; else that time.
func (w *watch) lastFull(after time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full.After(after) {
		return w.full
	}
	return after
}

// end stops the observation, and returns the highest occupancy of the table and the drops since the
// start, as details.
func (w *watch) end() (map[string]float64, error) {
	w.stop()
	w.done.Wait()
	out := map[string]float64{}
	if w.first.limit > 0 {
		out["table_percent"], out["table_end_percent"] = w.peak, w.last.percent()
	}
	for reason, n := range maps.All(w.last.drops) {
		if d := n - w.first.drops[reason]; d > 0 {
			out[dropDetail+reason] = d
		}
	}
	return out, w.err
}

// dropDetail begins the names of details that count packets dropped.
const dropDetail = "drop_"
