package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/test/mapmemory"
	"loxilb/test/net/rig"
)

// Numbers of services, and of endpoints of each service, in tests of scale.
const (
	manyServices        = 10000
	endpointsPerService = 10
)

// api calls a daemon's REST API over one connection.
type api struct {
	t      testing.TB
	client *http.Client
}

func newAPI(r *rig.Rig) *api {
	return &api{t: r.T, client: &http.Client{
		Timeout: 2 * time.Minute,
		Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return r.LB.DialContext(ctx, network, address)
		}},
	}}
}

// call makes a request, and returns how long it took and the body of the response. The test ends
// unless the status is 200.
func (a *api) call(method, path string, body []byte) (time.Duration, []byte) {
	a.t.Helper()
	start := time.Now()
	status, answer := a.answer(method, path, body)
	took := time.Since(start)
	if status != http.StatusOK {
		a.t.Fatalf("got %s %s: %d %.300s, want status == 200", method, path, status, answer)
	}
	return took, answer
}

// answer makes a request, and returns the status and body of the response.
func (a *api) answer(method, path string, body []byte) (int, []byte) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, "http://127.0.0.1:11111/netlox/v1/"+path, bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	res, err := a.client.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		a.t.Fatalf("%s %s: %s %v", method, path, res.Status, err)
	}
	return res.StatusCode, answer
}

// vipOf returns the VIP of service number n.
func vipOf(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{20, byte(n >> 16), byte(n >> 8), byte(n)})
}

// serviceOf returns service number n, at port 80. Its first endpoint is the topology's endpoint
// that answers as ep1.
func serviceOf(n int) v1.LoadbalanceEntry {
	e := v1.LoadbalanceEntry{ServiceArguments: v1.ServiceArguments{
		ExternalIP: vipOf(n).String(), Port: 80, Protocol: "tcp", Name: "service-" + strconv.Itoa(n),
	}}
	for i := range endpointsPerService {
		host, port := 1, 5001
		if i > 0 {
			host, port = 2+(n+i)%250, 8080+i
		}
		e.Endpoints = append(e.Endpoints, v1.Endpoint{EndpointIP: fmt.Sprintf("31.31.31.%d", host), TargetPort: port, Weight: new(1)})
	}
	return e
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// createRequests returns the body of a request that creates the services from to to-1.
func createRequests(t testing.TB, from, to int) []byte {
	t.Helper()
	var list []v1.LoadbalanceEntry
	for n := from; n < to; n++ {
		list = append(list, serviceOf(n))
	}
	return encode(t, v1.LoadbalanceRequest{LbAttr: list})
}

// createRequest returns the body of a request that creates service n.
func createRequest(t testing.TB, n int) []byte {
	t.Helper()
	e := serviceOf(n)
	return encode(t, v1.LoadbalanceRequest{ServiceArguments: &e.ServiceArguments, Endpoints: e.Endpoints})
}

// memoryOf returns a line of the daemon's /proc/PID/status.
func memoryOf(r *rig.Rig, field string) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Pid()))
	if err != nil {
		r.T.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// mapMemory returns the memory of the daemon's maps in KiB, as reported by the kernel.
func mapMemory(r *rig.Rig) int { return mapmemory.OfProcess(r.Pid()) >> 10 }

// TestScale checks that 10,000 services with 10 endpoints each answer as soon as one request has
// created them. A change of one of them takes as long as a change of a single service, and no
// client fails during a restart. The test compares ratios of times, since times depend on the
// machine's load.
func TestScale(t *testing.T) {
	args := []string{"--metrics-detail=service"} // the default
	many, few := rig.New(t, rig.Options{Args: args}), rig.New(t, rig.Options{Args: args})
	for _, r := range []*rig.Rig{many, few} {
		r.ServeNames()
	}
	a, b := newAPI(many), newAPI(few)
	t.Logf("memory with no service: %s", memoryOf(many, "VmRSS"))
	body := createRequests(t, 0, manyServices)
	took, _ := a.call("POST", "config/loadbalancer", body)
	t.Logf("POST of %d services of %d endpoints (%d KiB): %v", manyServices, endpointsPerService, len(body)>>10, took)
	for _, n := range []int{0, 1, manyServices - 1} { // round robin begins with the first endpoint
		many.WantAnswers(rig.Join(vipOf(n).String(), 80), "ep1")
	}
	t.Logf("memory with all services: %s, at most %s; maps in the kernel %d kB", memoryOf(many, "VmRSS"), memoryOf(many, "VmHWM"), mapMemory(many))

	compareChanges(t, a, b)

	took, answer := a.call("GET", "config/loadbalancer/all", nil)
	t.Logf("GET all: %v, %d KiB", took, len(answer)>>10)
	var list v1.LoadbalanceList
	if err := json.Unmarshal(answer, &list); err != nil || len(list.LbAttr) != manyServices {
		t.Errorf("%d services are listed, %v", len(list.LbAttr), err)
	}
	took, answer = a.call("GET", "metrics", nil)
	t.Logf("GET metrics: %v, %d KiB", took, len(answer)>>10)
	if len(answer) > 5_000_000 {
		t.Errorf("GET metrics answers %d bytes", len(answer))
	}

	restartUnderRequests(t, many)
	if rig.IsLong() {
		oneByOne(t, b)
	}

	took, _ = a.call("DELETE", "config/loadbalancer/all", nil)
	t.Logf("DELETE all: %v", took)
	many.WantNoAnswer(rig.Join(vipOf(5).String(), 80))
	took, _ = a.call("POST", "config/loadbalancer", body)
	t.Logf("POST of all again: %v", took)
	many.WantAnswers(rig.Join(vipOf(5).String(), 80), "ep1")
	t.Logf("memory at the end: %s", memoryOf(many, "VmRSS"))
}

// compareChanges creates, updates and deletes one service, alternately on a daemon with many
// services and on one with few.
func compareChanges(t *testing.T, many, few *api) {
	t.Helper()
	const n = manyServices + 1
	changed := serviceOf(n)
	changed.Endpoints = changed.Endpoints[:endpointsPerService-1]
	steps := []struct {
		name, method, path string
		body               []byte
	}{
		{"create", "POST", "config/loadbalancer", createRequest(t, n)},
		{"update", "POST", "config/loadbalancer", encode(t, v1.LoadbalanceRequest{
			ServiceArguments: &changed.ServiceArguments, Endpoints: changed.Endpoints,
		})},
		{"delete", "DELETE", "config/loadbalancer/externalipaddress/" + vipOf(n).String() + "/port/80/protocol/tcp", nil},
	}
	took := make([][2][]time.Duration, len(steps))
	for range 200 {
		for i, step := range steps {
			for j, a := range []*api{many, few} {
				d, _ := a.call(step.method, step.path, step.body)
				took[i][j] = append(took[i][j], d)
			}
		}
	}
	for i, step := range steps {
		beside, alone := took[i][0], took[i][1]
		slices.Sort(beside)
		slices.Sort(alone)
		at := func(d []time.Duration, percent int) time.Duration {
			return d[len(d)*percent/100].Round(10 * time.Microsecond)
		}
		t.Logf("%s one among %d others: 10 %% %v, median %v, 90 %% %v, 99 %% %v; alone: %v, %v, %v, %v", step.name, manyServices,
			at(beside, 10), at(beside, 50), at(beside, 90), at(beside, 99), at(alone, 10), at(alone, 50), at(alone, 90), at(alone, 99))
		if at(beside, 10) > 4*at(alone, 10) { // the least disturbed: other tests run beside
			t.Errorf("to %s one service takes longer among others", step.name)
		}
	}
}

// oneByOne creates all services with one request each.
func oneByOne(t *testing.T, a *api) {
	t.Helper()
	took := make([]time.Duration, manyServices)
	start := time.Now()
	for n := range took {
		took[n], _ = a.call("POST", "config/loadbalancer", createRequest(t, n))
	}
	total := time.Since(start)
	const part = manyServices / 10
	first, last := took[:part], took[manyServices-part:]
	slices.Sort(first)
	slices.Sort(last)
	t.Logf("%d POSTs one after the other: %v; median of the first %d %v, of the last %v", manyServices, total, part, first[part/2], last[part/2])
}

// restartUnderRequests restarts the daemon while a client sends requests, each to another service.
func restartUnderRequests(t *testing.T, r *rig.Rig) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan int, 1)
	go func() {
		asked := 0
		defer func() { done <- asked }()
		for n := 100; n < manyServices-1; n++ {
			select {
			case <-stop:
				return
			default:
			}
			asked++
			// Each request has a port of its own. ep1 may still have a connection from a port that
			// was used for another service, and the next endpoint does not exist.
			if who, err := r.AskFrom(10000+n, rig.Join(vipOf(n).String(), 80)); err != nil || !strings.HasPrefix(who, "ep1") {
				t.Errorf("request %d while the daemon restarts: %q, %v", asked, who, err)
				return
			}
		}
	}()
	r.Stop()
	start := time.Now()
	r.Restart()
	t.Logf("restart with %d services: ready after %v, memory %s", manyServices, time.Since(start), memoryOf(r, "VmRSS"))
	close(stop)
	t.Logf("%d requests answered meanwhile", <-done)
}
