package objects

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// announced is an address that this node answers for, with the property that names it.
type announced struct {
	addr  netip.Addr
	field string
}

// newAddresses returns the VIPs and source addresses that a transaction adds. Controllers and the
// existing loxilb's clients choose VIPs by themselves and would repeat a refused request forever,
// so their VIPs are left out. So are addresses that this node does not own: another node has them.
func (a *API) newAddresses(tx *store.Tx) (list []announced) {
	if a.AnyVIP {
		return nil
	}
	roles := sync.OnceValue(func() map[string]lb.Instance { return a.Store.Instances.OfThisNode(tx) })
	for before, after := range a.Store.Services.Differences(tx) {
		if after == nil || after.Managed {
			continue
		}
		if !roles()[after.Instance()].Role.Owns() {
			continue
		}
		for _, addr := range after.OwnAddresses() {
			if before == nil || !slices.Contains(before.OwnAddresses(), addr) {
				list = append(list, announced{addr, serviceField(after, addr)})
			}
		}
	}
	for before, after := range a.Store.Rules.Differences(tx) {
		if after == nil || after.Action != policy.RuleSNAT || before != nil && before.ToSource == after.ToSource {
			continue
		}
		if lb.OwnsSource(after.ToSource, roles()) {
			list = append(list, announced{after.ToSource, policy.FieldRuleToSource})
		}
	}
	slices.SortFunc(list, func(x, y announced) int {
		return cmp.Or(x.addr.Compare(y.addr), cmp.Compare(x.field, y.field))
	})
	return list
}

// serviceField returns the property of a service that names one of its addresses.
func serviceField(s *lb.Service, addr netip.Addr) string {
	if slices.Contains(s.SNAT, addr) {
		return "snatIPs"
	}
	return "externalIP"
}

// addressInUse refuses addresses that a host in a connected network has: announcing one would take
// that host off the network.
func (a *API) addressInUse(list []announced) *rest.Problem {
	if len(list) == 0 || a.Network == nil || a.Network.Neighbors == nil {
		return nil
	}
	known, err := a.Network.Neighbors.Confirmed()
	if err != nil {
		return nil // without permission to read neighbors, objects are created unchecked
	}
	for _, n := range known {
		i, is := slices.BinarySearchFunc(list, n.Addr, func(one announced, addr netip.Addr) int {
			return one.addr.Compare(addr)
		})
		if is && !a.answersFor(n.Addr) {
			return rest.RefuseField(http.StatusConflict, list[i].field, n.Addr.String(),
				"is the address of a live host ("+n.MAC.String()+" on "+n.Dev+"), which would be taken off the network",
				"an unused address; or force=true (loxicmd --force)")
		}
	}
	return nil
}

// answersFor reports whether stored services or rules have the address already.
func (a *API) answersFor(addr netip.Addr) bool {
	at := a.Store.Snapshot()
	if a.Store.Services.HasVIP(at, addr) {
		return true
	}
	for s := range a.Store.Services.EachShared(at) {
		if slices.Contains(s.SNAT, addr) {
			return true
		}
	}
	for r := range a.Store.Rules.EachShared(at) {
		if r.Action == policy.RuleSNAT && r.ToSource == addr {
			return true
		}
	}
	return false
}
