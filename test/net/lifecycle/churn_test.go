package lifecycle_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/test/net/rig"
)

// TestEndpointChange adds and removes endpoints under traffic. Connections to other endpoints are
// not affected, and new connections use the new set of endpoints.
//
// P10 Adding and removing endpoints affects no connection to other endpoints
func TestEndpointChange(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	rig.ServeEcho(r)
	r.ServeNames()
	kept := "31.31.31.1:1"
	r.Loxicmd("create lb %s --tcp=7:7 --endpoints=%s", rig.VIP4, kept)
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP4, kept)
	f := rig.StartTraffic(r, rig.Join(rig.VIP4, 7), 10)
	for _, others := range []string{"", ",32.32.32.1:1", ",32.32.32.1:1,17.17.17.1:1", ",17.17.17.1:7", ""} {
		for _, service := range []string{"7:7", "80:5001"} {
			if others != "" || service == "7:7" && f.Count() > 0 {
				_, _ = r.Command("create", "lb", rig.VIP4, "--tcp="+service, "--endpoints="+kept+others)
			}
		}
		f.AwaitLines(t, 10)
	}
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=32.32.32.1:1,17.17.17.1:1", rig.VIP4)
	var names []string
	for range 4 {
		who, err := r.Ask(rig.Join(rig.VIP4, 80))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, who[:3])
	}
	if got := strings.Join(names, " "); got != "ep2 ep3 ep2 ep3" && got != "ep3 ep2 ep3 ep2" {
		t.Errorf("after the change, the endpoints answer in the order %s", got)
	}
	if err := f.Finish(); err != nil {
		t.Error(err)
	}
}

// TestRestart stops or kills the daemon under traffic. While no daemon runs, established
// connections continue and new ones can be opened. The next daemon adopts the pinned maps and the
// services.
//
// P3 The end of a daemon and its next start change nothing for packets: maps, links, connections
// and the next choice of an endpoint stay
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, attach := range []string{"tcx", "clsact"} {
		for name, end := range map[string]func(*rig.Rig){"stop": func(r *rig.Rig) { r.Stop() }, "kill": func(r *rig.Rig) { r.Kill() }} {
			t.Run(attach+" "+name, func(t *testing.T) {
				t.Parallel()
				r := rig.New(t, rig.Options{Args: []string{"--attach", attach}})
				rig.ServeEcho(r)
				r.ServeNames()
				r.Loxicmd("create lb %s --tcp=7:7 --endpoints=%s", rig.VIP4, rig.Endpoints4())
				r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
				r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP6, rig.Endpoints6())
				f := rig.StartTraffic(r, rig.Join(rig.VIP4, 7), 9)
				r.WantAnswers(rig.Join(rig.VIP4, 80), "ep1", "ep2")
				before := pinnedIDs(t, r)
				if len(before) == 0 {
					t.Error("no map and no link is pinned")
				}

				end(r)
				f.AwaitLines(t, 9)
				r.WantAnswers(rig.Join(rig.VIP4, 80), "ep3", "ep1") // new connections without a daemon
				r.WantAnswers(rig.Join(rig.VIP6, 80), "ep1", "ep2")
				r.Restart()
				f.AwaitLines(t, 9)
				r.WantAnswers(rig.Join(rig.VIP4, 80), "ep2", "ep3", "ep1") // the order of endpoints continues
				r.WantAnswers(rig.Join(rig.VIP6, 80), "ep3")
				if after := pinnedIDs(t, r); !maps.Equal(before, after) {
					t.Errorf("pinned maps and links: %v before, %v after", before, after)
				}
				r.Loxicmd("create lb %s --tcp=81:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
				r.WantAnswers(rig.Join(rig.VIP4, 81), "ep1")
				r.Loxicmd("delete lb %s --tcp=80", rig.VIP4)
				r.WantNoAnswer(rig.Join(rig.VIP4, 80))
				if err := f.Finish(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// pinnedIDs returns the kernel's ids of the rig's pinned maps and links, by file name.
func pinnedIDs(t *testing.T, r *rig.Rig) map[string]uint32 {
	t.Helper()
	ids := map[string]uint32{}
	for _, path := range r.Pins() {
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

// TestParallel checks that a hundred simultaneous connections are spread evenly over endpoints.
func TestParallel(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	const connections = 100
	answers := make(chan string, connections)
	for range connections {
		go func() {
			who, err := r.Ask(rig.Join(rig.VIP4, 80))
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

// TestDamagedState checks that a daemon with a damaged state file starts, reports the damage, and
// keeps a copy of the file.
//
// P6 A daemon starts in spite of a damaged state file: it reports the damage, keeps a copy of the
// file, and uses its valid parts
func TestDamagedState(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create lb %s --tcp=81:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
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
			copy(b[5:], "#damage#") // not at the end: an incomplete last record is normal after a crash
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.Restart()
	after, err := os.ReadDir(state)
	if err != nil || damaged == 0 || len(after) <= len(files) {
		t.Errorf("%d files damaged; files before: %v, after: %v (%v)", damaged, files, after, err)
	}
	if log := r.Log(); !strings.Contains(log, "level=ERROR") && !strings.Contains(log, "level=WARN") {
		t.Errorf("the log does not report the damaged state")
	}
	r.Loxicmd("create lb %s --tcp=82:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
}
