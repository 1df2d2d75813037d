package reconcile

import (
	"net/netip"
	"testing"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// TestIPsecSource checks that a policy for the source address that endpoints see in mode onearm
// refuses all packets to the endpoint, and that doctor reports it.
func TestIPsecSource(t *testing.T) {
	t.Parallel()
	r := newStoppedRig(t, newFakeKernel())
	here, endpoint := netip.MustParseAddr("31.31.31.254"), netip.MustParseAddr("31.31.31.1")
	r.health.probes.policies.source = func(netip.Addr) netip.Addr { return here }
	i := NewIPsec(nil, nil, false, r.state, r.health, Observers{Statuses: r.statuses})
	i.current.Store(&policies{list: []policy.IPsecPolicy{{
		Source: netip.PrefixFrom(here, 32), Destination: netip.PrefixFrom(endpoint, 32), Action: policy.IPsecRefuse, Text: "block",
	}}})
	_, _, err := r.state.Commit("test", func(tx *store.Tx) error {
		return r.state.Services.Put(tx, lb.Service{
			Key:  lb.Key{VIP: netip.MustParseAddr("20.20.20.1"), Port: 80, Protocol: lb.TCP},
			Mode: lb.ModeOneArm, Endpoints: []lb.Endpoint{{Addr: endpoint, Port: 80, Weight: 1}},
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if list := i.Refused(10); len(list) != 1 || !list[0].RefusesAll {
		t.Errorf("got %+v, want 1 element, list[0].Whole", list)
	}
}
