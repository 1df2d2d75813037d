package main

import (
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const wrkText = `Running 5s test @ http://20.20.20.1:80/
  2 threads and 100 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     4.94ms    6.38ms  71.62ms   88.02%
    Req/Sec    15.31k     3.67k   23.46k    66.00%
  Latency Distribution
     50%  950.00us
     75%    7.03ms
     90%   12.80ms
     99%   29.87ms
  152343 requests in 5.02s, 11.33MB read
Requests/sec:  30369.13
Transfer/sec:      2.26MB
`

func TestParseWrk(t *testing.T) {
	got, err := parseWrk(wrkText)
	want := sample{Value: 30369.13, Answers: 152343, Details: map[string]float64{"p50_us": 950, "p99_us": 29870}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("got error %v; the result differs (-want +got):\n%s", err, d)
	}
	for _, bad := range []string{
		"  Socket errors: connect 0, read 3, write 0, timeout 1",
		"  Non-2xx or 3xx responses: 7",
	} {
		got, err := parseWrk(strings.Replace(wrkText, "Requests/sec", bad+"\nRequests/sec", 1))
		if err != nil || got.Invalid != strings.TrimSpace(bad) {
			t.Errorf("%q makes %q, %v", bad, got.Invalid, err)
		}
	}
	if _, err := parseWrk("unable to connect to 20.20.20.1:80 Connection refused\n"); err == nil {
		t.Error("output of wrk without a measurement is parsed as a result")
	}
}

func TestParseIperf(t *testing.T) {
	got, err := parseIperf(`{"start":{},"end":{"sum_sent":{"bytes":14480100,"bits_per_second":9},"sum_received":{"bytes":14480000,"bits_per_second":11.5e9}}}`)
	if d := cmp.Diff(sample{Value: 11.5, Answers: 10000}, got); d != "" || err != nil {
		t.Errorf("got error %v; the result differs (-want +got):\n%s", err, d)
	}
	if _, err := parseIperf(`{"error":"unable to connect to server: Connection refused"}`); err == nil {
		t.Error("an error of iperf3 is not reported")
	}
	if got, _ := parseIperf(`{"end":{}}`); got.Invalid == "" {
		t.Error("a test without any transfer is valid")
	}
}

func TestParseQperf(t *testing.T) {
	got, err := parseQperfLatency("tcp_lat:\n    latency  =  12322.7 ns\n")
	if math.Abs(got-12.3227) > 1e-9 || err != nil {
		t.Errorf("got %v %v, want 12.3227, no error", got, err)
	}
	got, err = parseQperfBandwidth("tcp_bw:\n    bw  =  2502819840 bytes/sec\n")
	if math.Abs(got-20.02255872) > 1e-9 || err != nil {
		t.Errorf("got %v %v, want 20.02255872, no error", got, err)
	}
	for _, bad := range []string{"20.20.20.1: failed to connect\n", "tcp_lat:\n    latency  =  12.3 us\n", "tcp_bw:\n    bw  =  0 bytes/sec\n"} {
		if v, err := parseQperfLatency(bad); err == nil {
			t.Errorf("%q is a latency: %v", bad, v)
		}
		if v, err := parseQperfBandwidth(bad); err == nil {
			t.Errorf("%q is a bandwidth: %v", bad, v)
		}
	}
	// latencies are one way: 10 us allow 50,000 exchanges per second
	if got := qperfExchanges(10, 1); got != 50_000 {
		t.Errorf("got %v, want 50_000", got)
	}
}

// TestServicePorts checks that every contender balances all ports of a workload with several, and
// that a proxy skips UDP.
func TestServicePorts(t *testing.T) {
	s := service{protocol: "tcp", port: 80, target: 8080, tcp: 81, udp: 82}
	rules := nftRules(s, []netip.Addr{netip.MustParseAddr("31.31.31.1"), netip.MustParseAddr("32.32.32.1")})
	for _, want := range []string{
		"20.20.20.1 . tcp . 80 : goto service-0", "20.20.20.1 . tcp . 81 : goto service-1", "20.20.20.1 . udp . 82 : goto service-2",
		"meta l4proto tcp dnat to 32.32.32.1:8080", "meta l4proto tcp dnat to 32.32.32.1:81", "meta l4proto udp dnat to 31.31.31.1:82",
	} {
		if !strings.Contains(rules, want) {
			t.Errorf("the rules have no %q:\n%s", want, rules)
		}
	}
	if d := cmp.Diff([]balancedPort{{"tcp", 80, 8080}, {"tcp", 81, 81}}, s.proxied(), cmp.AllowUnexported(balancedPort{})); d != "" {
		t.Errorf("the result differs (-want +got):\n%s", d)
	}
}

func TestSNMP(t *testing.T) {
	const text = "Ip: Forwarding DefaultTTL\nIp: 2 64\nTcp: ActiveOpens RetransSegs InErrs\nTcp: 12 345 0\n"
	if n, err := snmp(text, "Tcp", "RetransSegs"); n != 345 || err != nil {
		t.Errorf("got %v %v, want n == 345, no error", n, err)
	}
	for _, missing := range [][2]string{{"Tcp", "OutRsts"}, {"Udp", "RetransSegs"}} {
		if _, err := snmp(text, missing[0], missing[1]); err == nil {
			t.Errorf("a missing number was found: %v", missing)
		}
	}
}

func TestListening(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid
   0: 00000000000000000000000000000000:1451 00000000000000000000000000000000:0000 0A 00000000:00000000
   1: 0100007F:1452 00000000:0000 01 00000000:00000000
`
	if !listening(table, 5201) || listening(table, 5202) || listening(table, 81) {
		t.Error("only the socket in state 0A listens")
	}
}

func TestLayout(t *testing.T) {
	for n, want := range map[int]layout{
		2: {client: []int{0}, lb: []int{1}, endpoints: []int{0}, steered: true},
		3: {client: []int{0}, lb: []int{1}, endpoints: []int{2}, steered: true},
		8: {client: []int{0, 1}, lb: []int{2, 3}, endpoints: []int{4, 5, 6, 7}, steered: true},
	} {
		got, err := layoutNamed("pinned", n)
		if d := cmp.Diff(want, got, cmp.AllowUnexported(layout{})); d != "" || err != nil {
			t.Errorf("%d CPUs: %v %s", n, err, d)
		}
	}
	for _, bad := range []struct {
		name string
		n    int
	}{{"pinned", 1}, {"two", 4}} {
		if _, err := layoutNamed(bad.name, bad.n); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	for want, cpus := range map[string][]int{"1": {0}, "6": {1, 2}, "1,00000001": {0, 32}} {
		if got := cpuMask(cpus); got != want {
			t.Errorf("%v: %s, want %s", cpus, got, want)
		}
	}
}

func TestParseRings(t *testing.T) {
	got, err := parseFlowCosts(`goos: linux
BenchmarkEstablished/v4/2-2         	     300	        31.00 empty-ns	        66.00 own-ns
BenchmarkEstablished/v6/200k-2      	     300	        39.00 empty-ns	       561.0 own-ns
PASS
`)
	if d := cmp.Diff([]flowCost{{"v4/2", 31, 66}, {"v6/200k", 39, 561}}, got); d != "" || err != nil {
		t.Errorf("got error %v; the costs differ (-want +got):\n%s", err, d)
	}
	if _, err := parseFlowCosts("FAIL\n"); err == nil {
		t.Error("a failed benchmark is parsed as a result")
	}
}
