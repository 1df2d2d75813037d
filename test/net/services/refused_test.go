package services_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// TestRefusedClients checks that the API, commands and metrics show how many clients a service has
// refused, by reason.
func TestRefusedClients(t *testing.T) {
	t.Parallel()
	const withoutEndpoint, beyondLimit = 200, 64
	const refused = withoutEndpoint + beyondLimit
	r := rig.New(t, rig.Options{Args: []string{"--metrics-detail=endpoint"}})
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001 --name=web --client-connections=1 --endpoints=31.31.31.1:0", rig.VIP4)
	connectRefused(r, withoutEndpoint)
	r.Loxicmd("set endpoint 31.31.31.1 --weight=1")
	r.Dial(rig.Join(rig.VIP4, 80))
	connectRefused(r, beyondLimit)
	key := rig.Join(rig.VIP4, 80) + "/tcp"
	reasons := []v1.RefusedCount{{Reason: "no-endpoint", Count: withoutEndpoint}, {Reason: "connection-limit", Count: beyondLimit}}

	var one v1.ServiceDetail
	getJSON(r, "status/service?key="+key, &one)
	s := &one.Summary
	if s.Attempts != refused+1 || s.Refused != refused || fmt.Sprint(s.RefusedBy) != fmt.Sprint(reasons) || s.Opened != 1 || s.ActiveConnections != 1 || s.Failed != 0 {
		t.Errorf("/status/service: %+v", s)
	}
	var list v1.ServiceSummaryList // the page's list
	getJSON(r, "status/services", &list)
	if s := &list.ServiceAttr[0]; s.Refused != refused || s.Attempts != refused+1 {
		t.Errorf("/status/services: %+v", s)
	}
	var rated v1.ServiceRatesList
	getJSON(r, "status/rates/services?counters=true", &rated)
	if c := rated.Services[0].Counters; rated.Services[0].Refused != refused || c.Refused != refused || c.RefusedPackets != refused || fmt.Sprint(c.RefusedBy) != fmt.Sprint(reasons) {
		t.Errorf("/status/rates/services: %+v", c)
	}
	for reason, want := range map[string]float64{"no-endpoint": withoutEndpoint, "connection-limit": beyondLimit} {
		if n := r.Metric("service_refused_packets_total", "service="+key, "reason="+reason); n != want {
			t.Errorf("the metric has %v for %s", n, reason)
		}
	}
	awaitRefusedInHistory(r, "status/rates/history")
	awaitRefusedInHistory(r, "status/rates/history?service="+key)
	because := fmt.Sprintf("no-endpoint %d, connection-limit %d", withoutEndpoint, beyondLimit)
	for command, want := range map[string][]string{
		"stats " + key:       {" 264 ", "refused: " + because},
		"describe lb " + key: {" 264 ", because},
		"get lb -o wide":     {"REFUSED", " 264 "},
		"top --once web":     {"REFUSED", " 264\n"},
	} {
		out := r.Loxicmd("%s", command)
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("loxicmd %s does not print %q:\n%s", command, text, out)
			}
		}
	}
}

// awaitRefusedInHistory waits until the rates of the last hour contain refused clients.
func awaitRefusedInHistory(r *rig.Rig, path string) {
	r.T.Helper()
	labtest.Eventually(r.T, rig.Patience, func(context.Context) error {
		var h v1.RatesHistory
		getJSON(r, path, &h)
		if s := h.Series["refused"]; len(s) == 0 || slices.Max(s) == 0 {
			return fmt.Errorf("%s: refused %v", path, s)
		}
		return nil
	})
}

// connectRefused connects to the service repeatedly. The test ends unless each connection is
// refused.
func connectRefused(r *rig.Rig, clients int) {
	r.T.Helper()
	for range clients {
		ctx, cancel := context.WithTimeout(r.T.Context(), rig.Patience)
		c, err := r.Client.DialContext(ctx, "tcp", rig.Join(rig.VIP4, 80))
		cancel()
		if !errors.Is(err, syscall.ECONNREFUSED) {
			if err == nil {
				_ = c.Close()
			}
			r.T.Fatalf("the client was not refused: %v", err)
		}
	}
}

// getJSON reads a response of the API.
func getJSON(r *rig.Rig, path string, out any) {
	r.T.Helper()
	resp, err := r.LB.HTTPClient(rig.Patience).Get("http://127.0.0.1:11111/netlox/v1/" + path)
	if err != nil {
		r.T.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // of a test
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err == nil {
		err = json.Unmarshal(body, out)
	}
	if err != nil {
		r.T.Fatalf("%s: %v: %s", path, err, body)
	}
}

// TestActiveAndInactive checks that the API, commands and metrics count ended connections as
// inactive, and not as open.
func TestActiveAndInactive(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Args: []string{"--metrics-detail=endpoint"}})
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001 --name=web --endpoints=31.31.31.1:1", rig.VIP4)
	at, key := rig.Join(rig.VIP4, 80), rig.Join(rig.VIP4, 80)+"/tcp"
	for range 3 {
		_ = r.Dial(at).Close()
	}
	r.Dial(at)
	r.Dial(at)
	labtest.Eventually(t, 5*time.Second, func(context.Context) error {
		var one v1.ServiceDetail
		getJSON(r, "status/service?key="+key, &one)
		if s, e := &one.Summary, &one.Endpoints[0]; s.Connections != 2 || s.ActiveConnections != 2 || s.InactiveConnections != 3 ||
			e.ActiveConnections != 2 || e.InactiveConnections != 3 {
			return fmt.Errorf("/status/service: %+v, %+v", s, e)
		}
		return nil
	})
	for name, want := range map[string]float64{
		"service_connections_active": 2, "service_connections_inactive": 3, "endpoint_connections_active": 2,
		"endpoint_connections_inactive": 3,
	} {
		if n := r.Metric(name, "service="+key); n != want {
			t.Errorf("%s is %v, want %v", name, n, want)
		}
	}
	var rated v1.ServiceRatesList
	getJSON(r, "status/rates/services?counters=true&endpoints=true", &rated)
	if s := &rated.Services[0]; s.Inactive != 3 || s.Counters.Active != 2 || s.Endpoints[0].Inactive != 3 || s.Endpoints[0].Counters.Active != 2 {
		t.Errorf("/status/rates/services: %+v", s)
	}
	r.EventuallyShows("get lb -o wide", "31.31.31.1", " 2:3 ")
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		out := r.Loxicmd("top --once")
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) > 2 && f[0] == key && f[2] == "2" {
				return nil
			}
		}
		return fmt.Errorf("top does not show 2 open connections:\n%s", out)
	})
}
