package main

import (
	"net/netip"
	"testing"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// ejectedOf takes an endpoint out because of failed handshakes, but never the only one of a
// service.
type ejectedOf netip.Addr

func (out ejectedOf) EndpointVerdict(s *lb.Service, e lb.Endpoint) report.Verdict {
	return report.Verdict{Ejected: len(s.Endpoints) > 1 && e.Addr == netip.Addr(out)}
}

// TestUnprobedEndpoints checks that doctor does not connect to an endpoint that clients' handshakes
// have already shown to be down. It once reported such an endpoint twice.
func TestUnprobedEndpoints(t *testing.T) {
	t.Parallel()
	first, second := netip.MustParseAddr("31.31.31.1"), netip.MustParseAddr("32.32.32.1")
	s := &lb.Service{Endpoints: []lb.Endpoint{{Addr: first, Port: 80, Weight: 1}, {Addr: second, Port: 80, Weight: 1}}}
	stats := &report.ServiceStats{Endpoints: []report.EndpointStats{{}, {Available: true, Handshakes: report.Handshakes{Opened: 3, Repeated: 4}}}}
	list := unprobedOf(s, stats, nil, ejectedOf(first))
	if len(list) != 1 || list[0].At != netip.AddrPortFrom(second, 80) || list[0].SYNs != 7 {
		t.Errorf("got %+v, want 1 element, list[0].At == netip.AddrPortFrom(second, 80), list[0].SYNs == 7",
			list)
	}
	stats.Endpoints = stats.Endpoints[:1] // the data path lags behind the store
	if list = unprobedOf(s, stats, nil, ejectedOf(first)); len(list) != 0 {
		t.Errorf("got %+v, want no list", list)
	}
}
