package servicestate

import (
	"net/netip"
	"slices"
	"testing"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// TestDrains checks that a drain without a port applies to all endpoints of an address, and a drain
// with a port only to that one.
func TestDrains(t *testing.T) {
	t.Parallel()
	none := DrainsOf(slices.Values([]lb.Drain(nil)))
	all := DrainsOf(slices.Values([]lb.Drain{{Addr: netip.MustParseAddr("10.1.0.1")}}))
	one := DrainsOf(slices.Values([]lb.Drain{{Addr: netip.MustParseAddr("10.1.0.1"), Port: 80}}))
	for _, tc := range []struct {
		name   string
		drains Drains
		at     string
		want   bool
	}{
		{"nothing", none, "10.1.0.1:80", false},
		{"the address", all, "10.1.0.1:80", true},
		{"the address", all, "10.1.0.1:81", true},
		{"the address", all, "10.1.0.2:80", false},
		{"the address and port", one, "10.1.0.1:80", true},
		{"the address and port", one, "10.1.0.1:81", false},
		{"the address and port", one, "10.1.0.2:80", false},
	} {
		if got := tc.drains.Has(netip.MustParseAddrPort(tc.at)); got != tc.want {
			t.Errorf("with a drain of %s, %s is drained: %t, want %t", tc.name, tc.at, got, tc.want)
		}
	}
}

// failing is a Health that reports whether the endpoint with a port fails.
type failing map[uint16]bool

func (f failing) EndpointVerdict(_ *lb.Service, e lb.Endpoint) report.Verdict {
	return report.Verdict{Failing: f[e.Port]}
}

// TestGather checks that all members of a result come from the same endpoint.
func TestGather(t *testing.T) {
	t.Parallel()
	service := &lb.Service{}
	for _, e := range []lb.Endpoint{{Port: 80, Weight: 2}, {Port: 81, Weight: 3, Backup: 1}, {Port: 82, Weight: 4, Backup: 2}} {
		e.Addr = netip.MustParseAddr("10.1.0.1")
		service.Endpoints = append(service.Endpoints, e)
	}
	stats := &report.ServiceStats{Endpoints: []report.EndpointStats{{Available: true, Active: 5}, {Active: 6}}}
	drains := DrainsOf(slices.Values([]lb.Drain{{Addr: netip.MustParseAddr("10.1.0.1"), Port: 82}}))
	want := []Endpoint{
		{Weight: 2, Available: true, Open: 5},
		{Weight: 3, Open: 6, Backup: true, Verdict: report.Verdict{Failing: true}},
		{Weight: 4, Backup: true, Drained: true}, // not in the data path yet
	}
	if got := Gather(service, stats, drains, failing{81: true}); !slices.Equal(got, want) {
		t.Errorf("the endpoints are\n%+v, want\n%+v", got, want)
	}
}
