package reconcile

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"loxilb/internal/announce"
	"loxilb/internal/lb"
)

// LeaseTable holds the addresses that this node owns only while a lease lasts: a *leases.Leases.
type LeaseTable interface {
	// SetLeased sets the instances whose leases an address depends on; without any, the address
	// needs no lease.
	SetLeased(a netip.Addr, instances []string) error
	// KeepLeased removes all addresses except these.
	KeepLeased(keep func(netip.Addr) bool) error
}

// Leases shares a LeaseTable among several loops, which may own the same address. This machine's
// own addresses have no lease: they do not move to another node.
type Leases struct {
	Observers
	table LeaseTable
	isOwn func(netip.Addr) bool

	mu    sync.Mutex
	parts []*LeasePart
}

// LeasePart holds the leased addresses of one loop. A nil part has none, and ignores changes.
type LeasePart struct {
	leases *Leases
	leased map[netip.Addr][]string
}

// NewLeases returns a Leases without parts. isOwn reports whether this machine has an address, even
// if it is not a VIP.
func NewLeases(t LeaseTable, isOwn func(netip.Addr) bool, o Observers) *Leases {
	return &Leases{table: t, isOwn: isOwn, Observers: o}
}

// AddressChanged writes the lease of an address again: this machine may have gained or lost the
// address.
func (l *Leases) AddressChanged(a netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.instances(a)) > 0 {
		l.write(a)
	}
}

// write writes the lease of an address. An error is only logged: the node then owns the address
// without a lease. The caller holds the lock.
func (l *Leases) write(a netip.Addr) {
	var instances []string
	if !l.isOwn(a) {
		instances = l.instances(a)
	}
	if err := l.table.SetLeased(a, instances); err != nil {
		l.Log.Error("lease of a VIP cannot be set", "vip", a, "error", err)
	}
}

// Part returns a new part, for a loop.
func (l *Leases) Part() *LeasePart {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &LeasePart{leases: l, leased: map[netip.Addr][]string{}}
	l.parts = append(l.parts, p)
	return p
}

// set sets the instances whose leases an address of the loop depends on.
func (p *LeasePart) set(a netip.Addr, instances []string) {
	if p == nil {
		return
	}
	p.leases.mu.Lock()
	defer p.leases.mu.Unlock()
	if slices.Equal(p.leased[a], instances) {
		return
	}
	if p.leased[a] = instances; len(instances) == 0 {
		delete(p.leased, a)
	}
	p.leases.write(a)
}

// instances returns the instances whose leases an address depends on, for all loops. The caller
// holds the lock.
func (l *Leases) instances(a netip.Addr) (list []string) {
	for _, p := range l.parts {
		list = append(list, p.leased[a]...)
	}
	return unique(list)
}

// removeOrphans removes the leases of an earlier process for addresses that no loop owns.
func (p *LeasePart) removeOrphans() {
	if p == nil {
		return
	}
	p.leases.mu.Lock()
	defer p.leases.mu.Unlock()
	err := p.leases.table.KeepLeased(func(a netip.Addr) bool { return len(p.leases.instances(a)) > 0 && !p.leases.isOwn(a) })
	if err != nil {
		p.leases.Log.Error("leases of an earlier process cannot be removed", "error", err)
	}
}

// LeasedOwner acquires the addresses of a loop, with their leases.
type LeasedOwner struct {
	announce.Owner
	Leases *LeasePart // nil: no leases
}

// add leases addresses, then acquires them. leaseInstances returns the instances whose leases an
// address depends on.
func (o LeasedOwner) add(ctx context.Context, leaseInstances func(netip.Addr) []string, list []netip.Addr) map[netip.Addr]error {
	for _, a := range list {
		o.Leases.set(a, leaseInstances(a))
	}
	return o.Add(ctx, list...)
}

// remove releases addresses, then their leases.
func (o LeasedOwner) remove(ctx context.Context, list []netip.Addr) map[netip.Addr]error {
	failed := o.Remove(ctx, list...)
	for _, a := range list {
		if failed[a] == nil {
			o.Leases.set(a, nil)
		}
	}
	return failed
}

// leased is the set of instances whose addresses this node owns only while a lease lasts.
type leased map[string]bool

// ifAll returns the instances by which this node owns an address if all of them have a lease;
// otherwise nil: the address needs no lease.
func (l leased) ifAll(owning []string) []string {
	if slices.ContainsFunc(owning, func(instance string) bool { return !l[instance] }) {
		return nil
	}
	return owning
}

// ifSource returns the instance by which this node owns a source address of rules, if it has a
// lease.
func (l leased) ifSource(a netip.Addr, instances map[string]lb.Instance) []string {
	return l.ifAll([]string{lb.SourceInstance(a, instances)})
}
