package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/test/await"
)

func TestParseMetrics(t *testing.T) {
	const text = `# HELP loxilb_connections Connections that are tracked now.
# TYPE loxilb_connections gauge
loxilb_connections 65536
loxilb_connections_max 262144
loxilb_drops_total{reason="conntrack-full"} 1.5e+06
loxilb_drops_total{reason="no-endpoint"} 0
loxilb_endpoints 3
`
	got, err := parseMetrics(text)
	want := observation{used: 65536, limit: 262144, drops: map[string]float64{"conntrack-full": 1.5e6, "no-endpoint": 0}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(observation{})); d != "" || err != nil {
		t.Errorf("parsed metrics: %v (-want +got):\n%s", err, d)
	}
	if p := got.percent(); p != 25 {
		t.Errorf("the table is %v %% full, want 25 %%", p)
	}
	for _, bad := range []string{"", "loxilb_connections_max many\n"} {
		if _, err := parseMetrics(bad); err == nil {
			t.Errorf("%q is parsed as metrics", bad)
		}
	}
}

func TestParseConntrackStat(t *testing.T) {
	const text = `entries  clashres found new invalid ignore delete delete_list insert insert_failed drop early_drop icmp_error
000000a2  00000000 00000000 00000000 00000010 00000000 00000000 00000000 00000000 00000000 0000000f 00000001 00000000
000000a2  00000000 00000000 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000001 00000000 00000000
`
	got, err := parseConntrackStat(text)
	want := map[string]float64{"conntrack-invalid": 17, "conntrack-insert-failed": 0, "conntrack-drop": 16, "conntrack-early-drop": 1}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("parsed counters: %v (-want +got):\n%s", err, d)
	}
}

// TestWatch checks that the fullest state of a table is kept, that only drops during the watch
// count, and that a failed query is repeated.
func TestWatch(t *testing.T) {
	said, start := make(chan observation, 8), time.Now()
	see := func(context.Context, *rig) (observation, error) {
		o := <-said
		if o.limit == 0 {
			return o, errors.New("no answer")
		}
		return o, nil
	}
	say := func(used, drops float64) observation {
		return observation{used: used, limit: 200, drops: map[string]float64{"full": drops, "other": 7}}
	}
	said <- say(10, 5)
	w, err := new(rig).watch(t.Context(), see)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []observation{say(200, 30), {}, say(20, 45)} {
		said <- o
	}
	await.True(t, 10*time.Second, "a query for each observation", func() bool { return len(said) == 0 })
	if !w.lastFull(start).After(start) || !w.lastFull(time.Now().Add(time.Hour)).After(time.Now()) {
		t.Error("the watch does not know when the table was last full")
	}
	close(said)
	got, err := w.end()
	if d := cmp.Diff(map[string]float64{"table_percent": 100, "table_end_percent": 10, "drop_full": 40}, got); d != "" || err != nil {
		t.Errorf("details of the watch: %v (-want +got):\n%s", err, d)
	}
}
