package metrics_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/test/net/rig"
)

// rates sums up the daemon's rates, multiplied by the length of their windows. The sums are numbers
// of counted events.
type rates struct {
	t         *testing.T
	lines     *bufio.Scanner
	close     func()
	sum       float64            // of connections
	byService map[string]float64 // services
	last      v1.RatesUpdate
}

func watchRates(t *testing.T, r *rig.Rig) *rates {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:11111/netlox/v1/status/rates/events?sort=connections&endpoints=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := r.LB.HTTPClient(time.Minute).Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("got %v %v, want no error, code 200", resp, err)
	}
	w := &rates{t: t, lines: bufio.NewScanner(resp.Body), byService: map[string]float64{}, close: func() { cancel(); _ = resp.Body.Close() }}
	w.next() // ignore the first window, which began earlier
	w.sum, w.byService = 0, map[string]float64{}
	return w
}

// next adds the rates of the next window. The test fails if a rate is negative, or larger than this
// network allows.
func (w *rates) next() {
	w.t.Helper()
	for w.lines.Scan() {
		data, ok := strings.CutPrefix(w.lines.Text(), "data: ")
		if !ok {
			continue
		}
		w.last = v1.RatesUpdate{}
		if err := json.Unmarshal([]byte(data), &w.last); err != nil {
			w.t.Fatal(err)
		}
		total := &w.last.Total
		w.check("all services", &total.Rates)
		w.sum += float64(total.Rates.Connections) * total.Seconds
		for _, s := range w.last.List.Services {
			w.check(s.Service, &s.Rates)
			w.byService[s.Service] += float64(s.Rates.Connections) * total.Seconds
			for _, e := range s.Endpoints {
				w.check(e.Endpoint, &e.Rates)
			}
		}
		return
	}
	w.t.Fatal("the stream has ended: ", w.lines.Err())
}

func (w *rates) check(of string, r *v1.Rates) {
	w.t.Helper()
	for _, n := range [...]float32{r.Connections, r.PacketsIn, r.PacketsOut, r.BytesIn, r.BytesOut, r.RepeatedSyns, r.FailedHandshakes} {
		if n < 0 || n > 1e6 {
			w.t.Errorf("%s: got %+v, want n >= 0, n <= 1e6", of, *r)
			return
		}
	}
}

// wantConnections waits until the sum has reached the given number of connections.
func (w *rates) wantConnections(what string, connections float64) {
	w.t.Helper()
	for deadline := time.Now().Add(rig.Patience); w.sum < connections-0.01 && time.Now().Before(deadline); {
		w.next()
	}
	w.next() // the sum must not grow further
	if math.Abs(w.sum-connections) > 0.01 {
		w.t.Errorf("%s: %.2f connections were reported, want %v", what, w.sum, connections)
	}
}

// TestRates checks that the rates add up to the number of opened connections, although services and
// endpoints are replaced, deleted and created again, and the daemon is killed meanwhile. Earlier
// counts must not appear as a rate.
//
// P65 Rates add up to the counters: no event is counted twice, no rate is negative, and no rate
// includes events before the daemon's start
func TestRates(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	address := rig.Join(rig.VIP4, 80)
	ask := func(times int) {
		t.Helper()
		for range times {
			if _, err := r.Ask(address); err != nil {
				t.Fatal(err)
			}
		}
	}
	create := "create lb %s --tcp=80:5001 --name=web --endpoints=%s"
	r.Loxicmd(create, rig.VIP4, rig.Endpoints4(1, 1, 1))
	w := watchRates(t, r)
	ask(30)
	w.wantConnections("three endpoints", 30)
	r.Loxicmd(create, rig.VIP4, rig.Endpoints4(0, 0, 1))
	ask(5)
	w.wantConnections("one endpoint takes all", 35)
	r.Loxicmd("delete lb %s --tcp=80", rig.VIP4)
	r.Loxicmd(create, rig.VIP4, rig.Endpoints4(1, 1))
	ask(10)
	w.wantConnections("the service was made again", 45)
	service := fmt.Sprintf("%s:80/tcp", rig.VIP4)
	if math.Abs(w.byService[service]-45) > 0.01 {
		t.Errorf("service %s: %.2f of 45 connections", service, w.byService[service])
	}
	w.close()
	r.Kill()
	ask(20)
	r.Restart()
	w = watchRates(t, r)
	defer w.close()
	w.wantConnections("after the restart of the daemon", 0)
	ask(3)
	w.wantConnections("after that", 3)
	for _, line := range []string{"stats web", "rate web", "rate " + service, "top --once web"} {
		if out := r.Loxicmd("%s", line); !strings.Contains(out, rig.VIP4+":80") {
			t.Errorf("loxicmd %s shows no service: %s", line, out)
		}
	}
	if out := r.Loxicmd("stats web"); strings.Fields(out[strings.Index(out, "TCP "):])[2] != "33" { // a new service, after 35 connections, and 20 between two scrapes
		t.Errorf("33 connections were made to the service: %s", out)
	}
}
