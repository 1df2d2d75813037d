package reconcile

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/announce"
	"loxilb/internal/control/status"
)

// vipKind is the kind of the statuses of VIPs that could not be released. If one could not be
// acquired, its services fail.
const vipKind = "vip"

// leftoverRetry is the wait before releasing leftovers of an earlier object again: no request waits
// for it.
const leftoverRetry = time.Second

// vips tracks the addresses that were acquired from the owner. Only the loop's goroutine uses it.
type vips struct {
	Observers
	owner    announce.Owner
	wake     func()
	owned    map[netip.Addr]bool      // false: the owner failed, and retries by itself until the address is released
	leftover map[netip.Addr]time.Time // could not be released: when to retry
}

func newVIPs(owner announce.Owner, o Observers, wake func()) *vips {
	return &vips{Observers: o, owner: owner, wake: wake, owned: map[netip.Addr]bool{}, leftover: map[netip.Addr]time.Time{}}
}

// settle acquires or releases these addresses, as wanted reports, and returns those that could not
// be acquired.
func (v *vips) settle(ctx context.Context, touched []netip.Addr, wanted func(netip.Addr) bool) map[netip.Addr]error {
	var add, remove []netip.Addr
	slices.SortFunc(touched, netip.Addr.Compare)
	for _, a := range slices.Compact(touched) {
		owned, asked := v.owned[a]
		_, leftover := v.leftover[a]
		switch wants := wanted(a); {
		case wants && (!owned || leftover):
			add = append(add, a)
		case !wants && asked:
			remove = append(remove, a)
		}
	}
	if len(remove) > 0 {
		v.removed(remove, v.owner.Remove(ctx, remove...))
	}
	if len(add) == 0 {
		return nil
	}
	failed := v.owner.Add(ctx, add...)
	for _, a := range add {
		v.clear(a)
		v.owned[a] = failed[a] == nil
	}
	return failed
}

// exactly releases what an earlier process has left.
func (v *vips) exactly(ctx context.Context, wanted []netip.Addr) {
	keep := make(map[netip.Addr]bool, len(wanted))
	failed := v.owner.Set(ctx, wanted)
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

// retry releases what is due.
func (v *vips) retry(ctx context.Context, wanted func(netip.Addr) bool) {
	var due []netip.Addr
	for a, at := range v.leftover {
		if !time.Now().Before(at) {
			due = append(due, a)
		}
	}
	if len(due) > 0 {
		v.settle(ctx, due, wanted)
	}
}

// removed records which addresses were released, and which are to be retried.
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
		if v.Statuses.Failed(status.ID{Kind: vipKind, Key: a.String()}, 1, fmt.Errorf("give up: %w", err), due) {
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
