package api_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// TestMemoryLimit checks that the daemon applies thousands of services with hash tables while
// traffic continues. It refuses a request that exceeds the data path's memory in one sentence, and
// changes nothing.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	a := newAPI(r)
	// 33.5 MB with two CPUs. This includes 4 MB of counters of refused clients (adr/0070), 4 MB of
	// the table of deadlines of removed endpoints' connections, and 1 MB of handshake results and
	// samples. Little of it is per CPU.
	if size := mapMemory(r); size > 35<<10 {
		t.Errorf("the maps of an idle daemon take %d kB in the kernel, want at most 35 MB", size)
	}
	const services = 4200 // the limit of an earlier version
	took, _ := a.call("POST", "config/loadbalancer", encode(t, v1.LoadbalanceRequest{LbAttr: mixedServices(services, 1)}))
	t.Logf("%d services: %v; memory %s, at most %s; maps %d kB", services, took, memoryOf(r, "VmRSS"), memoryOf(r, "VmHWM"), mapMemory(r))
	r.Loxicmd("create lb 20.20.20.1 --tcp=80:5001 --endpoints=31.31.31.1:1")
	r.WantAnswers("20.20.20.1:80", "ep1", "ep1")
	before := r.Loxicmd("get lb")

	heavy := mixedServices(9000, 1)
	for i := range heavy {
		heavy[i].ServiceArguments.ExternalIP = fmt.Sprintf("21.0.0.%d", i>>8)
		heavy[i].ServiceArguments.Sel = "1"
		heavy[i].Endpoints[0].Weight = new(1000)
	}
	status, answer := a.answer("POST", "config/loadbalancer", encode(t, v1.LoadbalanceRequest{LbAttr: heavy}))
	for _, part := range []string{"slots in the tables that choose endpoints are more than the data path has room for (allowed: 134217728; now: ", "most: 21.0."} {
		if status != 400 || !strings.Contains(string(answer), part) {
			t.Errorf("%d %s, want 400 and %q", status, answer, part)
		}
	}
	if after := r.Loxicmd("get lb"); after != before {
		t.Error("a refused change has an effect")
	}
	r.Loxicmd("delete lb 20.20.20.1 --tcp=80")
	a.call("DELETE", "config/loadbalancer/all", nil)
}

// TestAllServices checks that the maximum number of services fits, with every algorithm and three
// endpoints each.
func TestAllServices(t *testing.T) {
	rig.Long(t)
	r := rig.New(t, rig.Options{})
	a := newAPI(r)
	const services, part = 65536, 8192
	t.Logf("none: memory %s; maps %d kB", memoryOf(r, "VmRSS"), mapMemory(r))
	for _, sel := range []int{-1, 1} { // all algorithms in rotation, then all with a hash table
		var took time.Duration
		for list := mixedServices(services, sel); len(list) > 0; list = list[part:] {
			d, _ := a.call("POST", "config/loadbalancer", encode(t, v1.LoadbalanceRequest{LbAttr: list[:part]}))
			took += d
		}
		t.Logf("%d services: %v; memory %s, at most %s; maps %d kB", services, took, memoryOf(r, "VmRSS"), memoryOf(r, "VmHWM"), mapMemory(r))
		if size := mapMemory(r); size > 300<<10 {
			t.Errorf("the maps take %d kB in the kernel, want at most 300 MB", size)
		}
	}
	wantMemoryReturned(r)
	r.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), rig.StartPatience)
	defer cancel()
	start := time.Now()
	if err := r.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready again after %v: memory %s; maps %d kB", time.Since(start), memoryOf(r, "VmRSS"), mapMemory(r))
	wantMemoryReturned(r)
}

// wantMemoryReturned waits until the daemon has returned the memory of a burst of requests.
func wantMemoryReturned(r *rig.Rig) {
	r.T.Helper()
	labtest.Eventually(r.T, time.Minute, func(context.Context) error {
		kilobytes, err := strconv.Atoi(strings.TrimSuffix(memoryOf(r, "VmRSS"), " kB"))
		if err == nil && kilobytes > 200<<10 {
			return fmt.Errorf("the daemon takes %d kB, want at most 200 MB", kilobytes)
		}
		return err
	})
	r.T.Logf("after the burst: memory %s", memoryOf(r, "VmRSS"))
}

// mixedServices returns services with three endpoints each. sel is their algorithm; -1: all in
// turn.
func mixedServices(services, sel int) (list []v1.LoadbalanceEntry) {
	algorithms := []int{0, 1, 2, 3, 4, 100}
	for n := range services {
		e := v1.LoadbalanceEntry{ServiceArguments: v1.ServiceArguments{
			ExternalIP: vipOf(n >> 8).String(), Port: 1000 + n&255, Protocol: "tcp", Sel: v1.Choice(strconv.Itoa(max(sel, 0))),
		}}
		if sel < 0 {
			e.ServiceArguments.Sel = v1.Choice(strconv.Itoa(algorithms[n%len(algorithms)]))
		}
		for i := range 3 {
			e.Endpoints = append(e.Endpoints, v1.Endpoint{EndpointIP: fmt.Sprintf("31.31.31.%d", 1+(n+i)%250), TargetPort: 8080 + n%1000, Weight: new(1)})
		}
		list = append(list, e)
	}
	return list
}
