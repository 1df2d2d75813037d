package reconcile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/netobj"
)

// leaseTable is a LeaseTable in memory.
type leaseTable map[netip.Addr]string

func (l leaseTable) SetLeased(a netip.Addr, instances []string) error {
	slices.Sort(instances)
	if l[a] = strings.Join(instances, " "); len(instances) == 0 {
		delete(l, a)
	}
	return nil
}

func (l leaseTable) KeepLeased(keep func(netip.Addr) bool) error {
	maps.DeleteFunc(l, func(a netip.Addr, _ string) bool { return !keep(a) })
	return nil
}

// TestLeases checks that a VIP that this node owns is leased if all instances by which it owns the
// VIP are elected.
func TestLeases(t *testing.T) {
	t.Parallel()
	r := newStoppedRig(t, newFakeKernel())
	table, own := leaseTable{netip.MustParseAddr("10.0.0.9"): "red"}, map[netip.Addr]bool{}
	leases := NewLeases(table, func(a netip.Addr) bool { return own[a] }, r.services.Observers)
	r.services.vips.owner.Leases = leases.Part()
	service := "10.0.0.%d:%d/tcp endpoints=10.1.0.1:80 name=x:%s"
	r.put(fmt.Sprintf(service, 1, 80, "red"), fmt.Sprintf(service, 2, 80, "red"), fmt.Sprintf(service, 2, 81, "blue"))
	r.start()
	want := func(rows ...string) {
		t.Helper()
		r.eventually(fmt.Sprint("leased are ", rows), func() bool {
			leases.mu.Lock()
			defer leases.mu.Unlock()
			var got []string
			for a, instances := range table {
				got = append(got, a.String()+" "+instances)
			}
			slices.Sort(got)
			return slices.Equal(got, rows)
		})
	}
	elect := func(instance string) {
		t.Helper()
		s := netobj.BFDSession{Remote: netip.MustParseAddr("10.0.0.8"), Instance: instance}
		r.commit(func(tx *store.Tx) error { return r.state.BFD.Put(tx, s.Normal()) })
	}
	want() // the lease of an earlier process is removed
	elect("red")
	want("10.0.0.1 red")
	elect("blue")
	want("10.0.0.1 red", "10.0.0.2 blue red")
	r.role("red", lb.RoleBackup)
	want("10.0.0.2 blue")
	r.role("red", lb.RoleMaster)
	want("10.0.0.1 red", "10.0.0.2 blue red")
	leases.mu.Lock()
	own[netip.MustParseAddr("10.0.0.1")] = true
	leases.mu.Unlock()
	leases.AddressChanged(netip.MustParseAddr("10.0.0.1"))
	want("10.0.0.2 blue red")
	r.commit(func(tx *store.Tx) error {
		return tx.Delete(r.state.BFD.ID(netobj.BFDKey(netip.MustParseAddr("10.0.0.8"), "blue")))
	})
	want()
}
