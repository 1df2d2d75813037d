package reconcile

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/control/status"
)

// vipKind is the kind of the statuses of VIPs that could not be released. For a VIP that could not
// be acquired, its services have the error.
const vipKind = "vip"

// leftoverRetry is the wait before the removal of leftovers is retried: no request waits for it.
const leftoverRetry = time.Second

// vips tracks the addresses that were acquired from the owner. Only the loop's goroutine uses it.
type vips struct {
	Observers
	owner          LeasedOwner
	wake           func()
	leaseInstances func(netip.Addr) []string // the instances whose leases an address depends on
	owned          map[netip.Addr]bool       // false: the owner failed, and retries by itself until remove
	leftover       map[netip.Addr]time.Time  // when to retry the release of addresses
}

func newVIPs(owner LeasedOwner, leaseInstances func(netip.Addr) []string, o Observers, wake func()) *vips {
	return &vips{Observers: o, owner: owner, leaseInstances: leaseInstances, wake: wake, owned: map[netip.Addr]bool{}, leftover: map[netip.Addr]time.Time{}}
}

// apply acquires or releases these addresses according to wanted, and returns the errors of those
// that could not be acquired.
func (v *vips) apply(ctx context.Context, touched []netip.Addr, wanted func(netip.Addr) bool) map[netip.Addr]error {
	var add, remove []netip.Addr
	slices.SortFunc(touched, netip.Addr.Compare)
	for _, a := range slices.Compact(touched) {
		owned, requested := v.owned[a]
		_, leftover := v.leftover[a]
		switch wants := wanted(a); {
		case wants && (!owned || leftover):
			add = append(add, a)
		case wants:
			v.owner.Leases.set(a, v.leaseInstances(a))
		case requested:
			remove = append(remove, a)
		}
	}
	if len(remove) > 0 {
		v.removed(remove, v.owner.remove(ctx, remove))
	}
	if len(add) == 0 {
		return nil
	}
	failed := v.owner.add(ctx, v.leaseInstances, add)
	for _, a := range add {
		v.clear(a)
		v.owned[a] = failed[a] == nil
	}
	return failed
}

// setAll acquires the wanted addresses, and releases all others, including those of an earlier
// process.
func (v *vips) setAll(ctx context.Context, wanted []netip.Addr) {
	keep := make(map[netip.Addr]bool, len(wanted))
	for _, a := range wanted {
		v.owner.Leases.set(a, v.leaseInstances(a))
	}
	failed := v.owner.Set(ctx, wanted)
	v.owner.Leases.removeOrphans()
	for _, a := range wanted {
		keep[a] = true
		v.owned[a] = failed[a] == nil
	}
	var left []netip.Addr
	for a := range failed {
		if !keep[a] {
			left = append(left, a)
			v.owned[a] = true
		}
	}
	v.removed(left, failed)
}

// retry retries the addresses that are due.
func (v *vips) retry(ctx context.Context, wanted func(netip.Addr) bool) {
	var due []netip.Addr
	for a, at := range v.leftover {
		if !time.Now().Before(at) {
			due = append(due, a)
		}
	}
	if len(due) > 0 {
		v.apply(ctx, due, wanted)
	}
}

// removed records which addresses were released, and which must be retried.
func (v *vips) removed(list []netip.Addr, failed map[netip.Addr]error) {
	for _, a := range list {
		err := failed[a]
		if err == nil {
			v.clear(a)
			delete(v.owned, a)
			continue
		}
		due := time.Now().Add(leftoverRetry)
		v.leftover[a] = due
		time.AfterFunc(leftoverRetry, v.wake)
		if v.Statuses.Failed(status.ID{Kind: vipKind, Key: a.String()}, 1, fmt.Errorf("release: %w", err), due) {
			v.Log.Error("VIP cannot be removed; trying again", "vip", a, "error", err)
		}
	}
}

func (v *vips) clear(a netip.Addr) {
	if _, ok := v.leftover[a]; ok {
		delete(v.leftover, a)
		v.Statuses.Forget(status.ID{Kind: vipKind, Key: a.String()})
	}
}
