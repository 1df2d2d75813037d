package health_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// TestViewsAgree checks that the API, all commands and metrics show the same states of a service
// and its endpoints.
func TestViewsAgree(t *testing.T) {
	t.Parallel()
	r := newWireRig(t, rig.Options{Args: []string{"--metrics-detail=endpoint"}})
	servers := startServers(r.Rig)
	address := rig.Join(rig.VIP4, 80)
	r.Loxicmd("create lb %s --tcp=80:5001 --name=web --endpoints=31.31.31.1:1,32.32.32.1:1", rig.VIP4)
	for _, c := range []struct {
		name    string
		prepare func()
		service string
		first   string
		second  string
		top     string // in the list of services: how many endpoints serve, or the state
	}{
		{"both serve", func() {}, "unprobed", "unprobed", "unprobed", "2/2"},
		{"one drained", func() { r.Loxicmd("drain endpoint 32.32.32.1") }, "unprobed", "unprobed", "drained", "1/2"},
		{"one draining", func() {
			r.Loxicmd("undrain endpoint 32.32.32.1")
			holdBoth(r.Rig, address)
			r.Loxicmd("drain endpoint 32.32.32.1")
		}, "unprobed", "unprobed", "draining", "1/2"},
		{"connections end", func() { r.Loxicmd("kill ct --all") }, "unprobed", "unprobed", "drained", "1/2"},
		{"one drained, the other of weight 0", func() { r.Loxicmd("set endpoint 31.31.31.1:5001 --weight=0") }, "drained", "drained", "drained", "drained"},
		{"both serve again", func() {
			r.Loxicmd("set endpoint 31.31.31.1:5001 --weight=1")
			r.Loxicmd("undrain endpoint 32.32.32.1")
		}, "unprobed", "unprobed", "unprobed", "2/2"},
		{"one drained, the other dead", func() {
			r.Loxicmd("drain endpoint 32.32.32.1")
			servers[0].stop()
		}, "down", "down", "drained", "down"},
		{"both serve after that", func() {
			servers[0].start()
			r.Loxicmd("undrain endpoint 32.32.32.1")
		}, "unprobed", "unprobed", "unprobed", "2/2"},
		{"both dead", func() {
			servers[0].stop()
			servers[1].stop()
		}, "down", "down", "down", "down"},
	} {
		c.prepare()
		stop := openRepeatedly(r.Rig, address, 50*time.Millisecond)
		if c.first != "down" {
			stop()
		}
		labtest.Eventually(t, 2*rig.Patience, func(context.Context) error {
			return checkViews(r.Rig, c.service, []string{c.first, c.second}, c.top)
		})
		if c.first == "down" {
			r.EventuallyShows("get ep", "31.31.31.1_none_5001", " down ", "client SYNs refused")
			r.EventuallyShows("get events", "31.31.31.1:5001", "down")
			stop()
		}
		if t.Failed() {
			t.Fatalf("%v: a view shows another state (see above)", c.name)
		}
	}
}

// holdBoth opens a connection to each of the two endpoints.
func holdBoth(r *rig.Rig, address string) {
	for range 2 {
		r.Dial(address)
	}
}

// checkViews returns an error that lists the views that do not show the given states of the only
// service and its two endpoints.
func checkViews(r *rig.Rig, service string, endpoints []string, top string) error {
	var errs []error
	want := func(view string, ok bool, got any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %v", view, got))
		}
	}
	key := rig.Join(rig.VIP4, 80) + "/tcp"
	var one v1.ServiceDetail
	errs = append(errs, getJSON(r, "status/service?key="+key, &one))
	want("/status/service", len(one.Endpoints) == 2 && one.Summary.State == service && one.Endpoints[0].State == endpoints[0] && one.Endpoints[1].State == endpoints[1], one)
	var short v1.ServiceSummaryList // the page's list
	errs = append(errs, getJSON(r, "status/services", &short))
	want("/status/services", len(short.ServiceAttr) == 1 && short.ServiceAttr[0].State == service, short)
	out, _ := r.Command("explain", "--from", "100.100.100.1:4000", "--to", rig.Join(rig.VIP4, 80)) // exit code 1 is no error here
	for i, at := range []string{"31.31.31.1:5001", "32.32.32.1:5001"} {
		want("explain", endpoints[i] == "unprobed" || slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			return strings.Contains(line, at) && strings.Contains(line, endpoints[i])
		}), at+" is not "+endpoints[i]+" in "+out)
	}
	var rated v1.ServiceRatesList
	errs = append(errs, getJSON(r, "status/rates/services?endpoints=true", &rated))
	want("/status/rates/services", len(rated.Services) == 1 && rated.Services[0].State == service &&
		rated.Services[0].Endpoints[0].State == endpoints[0] && rated.Services[0].Endpoints[1].State == endpoints[1], rated)
	var list v1.LoadbalanceList
	errs = append(errs, getJSON(r, "config/loadbalancer/all", &list))
	want("/config/loadbalancer/all", len(list.LbAttr) == 1 && list.LbAttr[0].ObservedState == service && list.LbAttr[0].Endpoints[0].ObservedState == endpoints[0], list)
	for i, at := range []string{"31.31.31.1", "32.32.32.1"} {
		for _, command := range []string{"get lb -o wide", "describe lb " + key} {
			out, err := r.Command(strings.Fields(command)...)
			want(command, err == nil && slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
				return strings.Contains(line, at) && strings.Contains(line, " "+endpoints[i]+" ")
			}), out)
		}
	}
	count := map[string]int{}
	for _, state := range endpoints {
		count[state]++
	}
	page, err := r.Metrics()
	errs = append(errs, err)
	for state, n := range count {
		line := fmt.Sprintf("loxilb_service_endpoints{service=%q,state=%q} %v\n", key, state, n)
		want("metrics", strings.Contains(page, line), "not "+line)
	}
	up := 0
	if slices.Contains([]string{"up", "unprobed", "degraded"}, service) {
		up = 1
	}
	line := fmt.Sprintf("loxilb_service_up{service=%q,name=\"web\"} %d\n", key, up)
	want("metrics", strings.Contains(page, line), "not "+line)
	out, err = r.Command("top", "--once")
	want("top", err == nil && slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
		f := strings.Fields(line)
		return len(f) > 1 && f[0] == key && f[1] == top
	}), out)
	return errors.Join(errs...)
}

// getJSON decodes a response of the API.
func getJSON(r *rig.Rig, path string, out any) error {
	resp, err := r.LB.HTTPClient(rig.Patience).Get("http://127.0.0.1:11111/netlox/v1/" + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // of a test
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: got %s, want code 200", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}
