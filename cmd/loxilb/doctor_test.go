package main

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"loxilb/internal/control/reconcile"
	"loxilb/internal/control/status"
	"loxilb/internal/diagnose/doctor"
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

// TestConnectable checks that doctor does not blame endpoints of SCTP for refusing TCP.
func TestConnectable(t *testing.T) {
	t.Parallel()
	for protocol, want := range map[lb.Protocol]bool{lb.TCP: true, lb.SCTP: false, lb.UDP: false} {
		if got := isConnectable(&lb.Service{Key: lb.Key{Port: 80, Protocol: protocol}}); got != want {
			t.Errorf("doctor connects to endpoints of %s: %v, want %v", protocol, got, want)
		}
	}
}

// TestFailedObjects checks that doctor reports what `loxicmd get status --failed` lists, except
// failures that other checks report.
func TestFailedObjects(t *testing.T) {
	t.Parallel()
	statuses := status.NewTable()
	network := status.ID{Kind: reconcile.TaskKind, Key: "100.100.100.0/24"}
	failure := errors.New("session \"a\" does not exist")
	statuses.Failed(status.ID{Kind: "sessionulcl", Key: "a/192.0.2.1"}, 3, failure, time.Time{})
	statuses.Succeeded(status.ID{Kind: "session", Key: "b"}, 2)
	statuses.Include(func() []status.Status {
		return []status.Status{
			{ID: status.ID{Kind: "endpoint", Key: "192.0.2.1"}, Desired: 1, Err: failure},
			{ID: status.ID{Kind: reconcile.TaskKind, Key: sharedStoreTask}, Desired: 1, Err: failure},
			{ID: network, Desired: 1, Err: failure},
		}
	})
	isObject := func(id status.ID) bool { return id.Kind == "sessionulcl" }
	want := []doctor.Problem{{About: "sessionulcl a/192.0.2.1", What: failure.Error(), Hint: "loxicmd get status --failed"}}
	if got := failedObjects(statuses, isObject, map[status.ID]bool{network: true}); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
