package datapath

import (
	"context"
	"maps"
	"slices"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"net/netip"
)

// clientGroups returns the groups of the table that have clients' entries, by endpoint.
func clientGroups(t *testing.T, d *Datapath) map[uint32][]uint32 {
	t.Helper()
	one, cancel := context.WithCancel(t.Context())
	cancel() // stops after each group
	found := map[uint32]map[uint32]bool{}
	for group := 0; ; {
		next, err := d.collection.Conntrack.EachFrom(one, group, func(_ bpf.TcConnectionKey, c bpf.TcConnection) bool {
			if c.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) == 0 {
				if found[c.Endpoint] == nil {
					found[c.Endpoint] = map[uint32]bool{}
				}
				found[c.Endpoint][uint32(group)] = true
			}
			return true
		})
		if next == 0 && err == nil {
			break
		}
		group = next
	}
	sorted := map[uint32][]uint32{}
	for id, groups := range found {
		sorted[id] = slices.Sorted(maps.Keys(groups))
	}
	return sorted
}

// TestLocationMap checks that the location map has an endpoint's connections as soon as they open,
// while the table grows, and after sweeps. A location is removed two sweeps after its last
// connection has ended.
func TestLocationMap(t *testing.T) {
	s := newStress(t)
	known := func(when string, exactly bool) {
		t.Helper()
		for id, want := range clientGroups(t, s.d) {
			got, err := s.d.collection.Locations.Groups([]uint32{id})
			if err != nil {
				t.Fatal(err)
			}
			for _, group := range want {
				if !slices.Contains(got, group) {
					t.Errorf("%s: a connection of endpoint %d is in group %d, which is not among %d", when, id, group, got)
				}
			}
			if exactly && len(got) != len(want) {
				t.Errorf("%s: connections of endpoint %d are in groups %d; the location map has %d", when, id, want, got)
			}
		}
	}
	sweep := func() {
		t.Helper()
		if err := s.d.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	open := func() {
		t.Helper()
		for i := range stressPorts {
			for _, svc := range s.services {
				if svc.Protocol == lb.TCP {
					if err := s.send(segment(s.client(i), netip.AddrPortFrom(svc.VIP, svc.Port), tcpSYN, isn, 0)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	s.apply(3, bpf.Deadline{})
	open()
	if len(clientGroups(t, s.d)) == 0 {
		t.Fatal("no connection was opened")
	}
	known("when they were opened", true)
	for s.groups < stressGroups {
		if err := s.grow(); err != nil {
			t.Fatal(err)
		}
	}
	known("when the table has grown", false)
	for range 3 {
		sweep()
		known("after a sweep", false)
	}
	known("after three sweeps", true)
}
