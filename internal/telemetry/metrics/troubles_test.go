package metrics

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// TestTroubles checks that the sums of a service include the counts of its endpoints while they
// belong to it, and never decrease.
func TestTroubles(t *testing.T) {
	t.Parallel()
	web, other := lb.Key{Port: 80}, lb.Key{Port: 81}
	endpoint := func(last byte, failed uint64, down time.Duration, services ...lb.Key) *report.EndpointHealth {
		e := &report.EndpointHealth{Failed: failed, Downtime: down * time.Second, Services: services}
		e.Addr, e.Probe.Port = netip.AddrFrom4([4]byte{31, 31, 31, last}), 5001
		return e
	}
	var sums troubles
	unprobed := map[lb.Key][]lb.Endpoint{}
	want := func(what string, of lb.Key, failed uint64, down time.Duration, keys []lb.Key, list ...*report.EndpointHealth) {
		t.Helper()
		var services []*lb.Service
		for _, key := range keys {
			s := &lb.Service{Key: key, Endpoints: unprobed[key]}
			for _, e := range list {
				if slices.Contains(e.Services, key) {
					s.Endpoints = append(s.Endpoints, lb.Endpoint{Addr: e.Addr, Port: e.Probe.Port})
				}
			}
			services = append(services, s)
		}
		have := sums.update(services, newProbed(false, slices.Values(list)).troubles)
		if have[of] != (trouble{failed, down * time.Second}) {
			t.Errorf("%s: got %+v, want trouble{failed, down * time.Second}", what, have[of])
		}
	}
	both := []lb.Key{web, other}
	want("nothing has failed", web, 0, 0, both, endpoint(1, 0, 0, web))
	want("one fails", web, 3, 10, both, endpoint(1, 3, 10, web), endpoint(2, 0, 0, web))
	want("probe and handshakes call it down", web, 5, 12, both, endpoint(1, 5, 12, web), endpoint(1, 0, 11, web))
	want("one comes that has failed before", web, 6, 13, both, endpoint(1, 6, 13, web), endpoint(2, 100, 1000, web, other))
	want("the other service begins with all of that", other, 101, 1001, both, endpoint(1, 6, 13, web), endpoint(2, 101, 1001, web, other))
	want("one leaves", web, 9, 16, both, endpoint(2, 103, 1003, web, other))
	want("its counters restart", other, 105, 1003, both, endpoint(2, 2, 0, web, other))
	want("all leave", web, 11, 16, both)
	want("the service is gone", web, 0, 0, []lb.Key{other})

	sums = troubles{}
	want("two have not failed", web, 0, 0, both, endpoint(1, 0, 0, web), endpoint(2, 0, 0, web))
	if len(sums.total) > 0 {
		t.Errorf("sums without a failure: %v", sums.total)
	}
	want("the first one fails", web, 3, 10, both, endpoint(1, 3, 10, web), endpoint(2, 0, 0, web))
	want("the second one does", web, 5, 14, both, endpoint(1, 3, 10, web), endpoint(2, 2, 4, web))
	unprobed[web] = []lb.Endpoint{{Addr: netip.MustParseAddr("31.31.31.3"), Port: 5001}}
	want("a third one that is not probed", web, 5, 14, both, endpoint(1, 3, 10, web), endpoint(2, 2, 4, web))
	want("handshakes with it fail", web, 5, 16, both, endpoint(1, 3, 10, web), endpoint(2, 2, 4, web), endpoint(3, 0, 2, web))
}
