package net_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/internal/netnstest"
	"loxilb/internal/netnstest/labtest"
)

// traffic is a number of connections to an echo service, all of them in constant use.
type traffic struct {
	wg    sync.WaitGroup
	stop  chan struct{}
	mu    sync.Mutex
	err   error
	lines int
}

// startTraffic opens connections and talks over each until finish.
func startTraffic(r *rig, address string, connections int) *traffic {
	f := &traffic{stop: make(chan struct{})}
	for i := range connections {
		c := r.dial(address)
		f.wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-f.stop:
					return
				default:
				}
				err := exchange(c, fmt.Sprintf("connection %d line %d\n", i, n))
				f.mu.Lock()
				if err != nil && f.err == nil {
					f.err = fmt.Errorf("connection %d line %d: %w", i, n, err)
				}
				f.lines++
				f.mu.Unlock()
				if err != nil {
					return
				}
				time.Sleep(time.Millisecond) // leave the machine some air
			}
		})
	}
	return f
}

// count is how many lines have come back so far.
func (f *traffic) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lines
}

// flows waits until every connection has talked some more since.
func (f *traffic) flows(t testing.TB, connections int) {
	t.Helper()
	before := f.count()
	labtest.Eventually(t, patience, func(context.Context) error {
		if n := f.count(); n < before+3*connections {
			return fmt.Errorf("only %d lines came back", n-before)
		}
		return nil
	})
}

// finish stops and returns the first error of any connection.
func (f *traffic) finish() error {
	close(f.stop)
	f.wg.Wait()
	return f.err
}

func serveEcho(r *rig) {
	r.t.Helper()
	for _, h := range r.Endpoints {
		if err := h.ServeTCP(":7", netnstest.Echo); err != nil {
			r.t.Fatal(err)
		}
	}
}

// TestEndpointChange: endpoints come and go under traffic; connections of those that stay never notice, new ones go
// to the new set.
//
// P10 endpoints that come and go disturb no connection of those that stay
func TestEndpointChange(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	serveEcho(r)
	r.serveNames()
	stays := "31.31.31.1:1"
	r.loxicmd("create lb %s --tcp=7:7 --endpoints=%s", vip4, stays)
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", vip4, stays)
	f := startTraffic(r, join(vip4, 7), 10)
	for _, others := range []string{"", ",32.32.32.1:1", ",32.32.32.1:1,17.17.17.1:1", ",17.17.17.1:7", ""} {
		for _, service := range []string{"7:7", "80:5001"} {
			if others != "" || service == "7:7" && f.count() > 0 {
				_, _ = r.Command("create", "lb", vip4, "--tcp="+service, "--endpoints="+stays+others)
			}
		}
		f.flows(t, 10)
	}
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=32.32.32.1:1,17.17.17.1:1", vip4)
	var names []string
	for range 4 {
		who, err := r.ask(join(vip4, 80))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, who[:3])
	}
	if got := strings.Join(names, " "); got != "ep2 ep3 ep2 ep3" && got != "ep3 ep2 ep3 ep2" {
		t.Errorf("after the change, answers come from %s", got)
	}
	if err := f.finish(); err != nil {
		t.Error(err)
	}
}

// TestRestart: the daemon stops, or is killed, under traffic. Established connections go on, new ones come about
// while it is away, and the next daemon adopts what is pinned and knows its services.
//
// P3 a daemon that stops, and another that takes over, change nothing that packets see: maps, links, connections and the next choice of an
// endpoint stay
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, attach := range []string{"tcx", "clsact"} {
		for name, end := range map[string]func(*rig){"stop": func(r *rig) { r.Stop() }, "kill": func(r *rig) { r.Kill() }} {
			t.Run(attach+" "+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, options{args: []string{"--attach", attach}})
				serveEcho(r)
				r.serveNames()
				r.loxicmd("create lb %s --tcp=7:7 --endpoints=%s", vip4, endpoints4())
				r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", vip4, endpoints4())
				r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", vip6, endpoints6())
				f := startTraffic(r, join(vip4, 7), 9)
				r.wantAnswers(join(vip4, 80), "ep1", "ep2")
				before := pinnedIDs(t, r)
				if len(before) == 0 {
					t.Error("nothing is pinned")
				}

				end(r)
				f.flows(t, 9)
				r.wantAnswers(join(vip4, 80), "ep3", "ep1") // a new connection without a daemon
				r.wantAnswers(join(vip6, 80), "ep1", "ep2")
				r.restart()
				f.flows(t, 9)
				r.wantAnswers(join(vip4, 80), "ep2", "ep3", "ep1") // the sequence goes on, too
				r.wantAnswers(join(vip6, 80), "ep3")
				if after := pinnedIDs(t, r); !maps.Equal(before, after) {
					t.Errorf("pinned maps and links were %v before, are %v", before, after)
				}
				r.loxicmd("create lb %s --tcp=81:5001 --endpoints=%s", vip4, endpoints4())
				r.wantAnswers(join(vip4, 81), "ep1")
				r.loxicmd("delete lb %s --tcp=80", vip4)
				r.wantNoAnswer(join(vip4, 80))
				if err := f.finish(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// pinnedIDs are the kernel's ids of the rig's pinned maps and links, by file name.
func pinnedIDs(t *testing.T, r *rig) map[string]uint32 {
	t.Helper()
	ids := map[string]uint32{}
	for _, path := range r.pinned() {
		name := filepath.Base(path)
		if m, err := ebpf.LoadPinnedMap(path, nil); err == nil {
			info, err := m.Info()
			if err != nil {
				t.Fatal(err)
			}
			id, _ := info.ID()
			ids[name] = uint32(id)
			_ = m.Close()
			continue
		}
		if l, err := link.LoadPinnedLink(path, nil); err == nil {
			info, err := l.Info()
			if err != nil {
				t.Fatal(err)
			}
			ids["link "+name] = uint32(info.ID)
			_ = l.Close()
		}
	}
	return ids
}

// TestParallel: a hundred connections at once are shared exactly.
func TestParallel(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.serveNames()
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", vip4, endpoints4())
	const connections = 100
	answers := make(chan string, connections)
	for range connections {
		go func() {
			who, err := r.ask(join(vip4, 80))
			if err != nil {
				who = err.Error()
			}
			answers <- who
		}()
	}
	counts := map[string]int{}
	for range connections {
		who, _, _ := strings.Cut(<-answers, " sees")
		counts[who]++
	}
	if !maps.Equal(counts, map[string]int{"ep1": 34, "ep2": 33, "ep3": 33}) {
		t.Errorf("100 connections were shared as %v", counts)
	}
}

// TestDamagedState: a daemon whose state file is damaged starts, says so, and keeps the damaged file.
//
// P6 a damaged state file keeps no daemon from starting: it is set aside and said, and what is good in it is kept
func TestDamagedState(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", vip4, endpoints4())
	r.loxicmd("create lb %s --tcp=81:5001 --endpoints=%s", vip4, endpoints4())
	r.Kill()
	state := filepath.Join(r.Dir(), "state")
	files, err := os.ReadDir(state)
	if err != nil || len(files) == 0 {
		t.Fatalf("no state in %s: %v", state, err)
	}
	damaged := 0
	for _, f := range files {
		path := filepath.Join(state, f.Name())
		if b, err := os.ReadFile(path); err == nil && len(b) > 10 {
			damaged++
			copy(b[5:], "#damage#") // not at the end: a torn end is what a crash leaves
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.restart()
	after, err := os.ReadDir(state)
	if err != nil || damaged == 0 || len(after) <= len(files) {
		t.Errorf("%d files damaged; the directory had %v, has %v (%v)", damaged, files, after, err)
	}
	if log := r.Log(); !strings.Contains(log, "level=ERROR") && !strings.Contains(log, "level=WARN") {
		t.Errorf("no word about the damaged state in the log")
	}
	r.loxicmd("create lb %s --tcp=82:5001 --endpoints=%s", vip4, endpoints4())
}
