package objects

import (
	"net/http"
	"net/netip"
	"slices"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// newVIPs returns the VIPs that a transaction adds. Controllers and the existing loxilb's clients
// choose VIPs by themselves and would repeat a refused request forever, so their VIPs are left out.
// So are VIPs that this node does not own: another node has them.
func (a *API) newVIPs(tx *store.Tx) (list []netip.Addr) {
	if a.AnyVIP {
		return nil
	}
	var roles map[string]lb.Instance
	for before, after := range a.Store.Services.Differences(tx) {
		if after == nil || after.Managed {
			continue
		}
		if roles == nil {
			roles = a.Store.Instances.OfThisNode(tx)
		}
		if !roles[after.Instance()].Role.Owns() {
			continue
		}
		for _, key := range append(after.SecondaryKeys(), after.Key) {
			isNew := before == nil || key != before.Key && !slices.Contains(before.Secondary, key.VIP)
			if isNew && !key.VIP.IsUnspecified() {
				list = append(list, key.VIP)
			}
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}

// addressInUse refuses VIPs that a host in a connected network has: announcing one would take that
// host off the network.
func (a *API) addressInUse(vips []netip.Addr) *rest.Problem {
	if len(vips) == 0 || a.Network == nil || a.Network.Neighbors == nil {
		return nil
	}
	known, err := a.Network.Neighbors.Confirmed()
	if err != nil {
		return nil // without permission to read neighbors, services are created unchecked
	}
	for _, n := range known {
		if _, is := slices.BinarySearchFunc(vips, n.Addr, netip.Addr.Compare); is && !a.Store.Services.HasVIP(a.Store.Snapshot(), n.Addr) {
			return rest.RefuseField(http.StatusConflict, "externalIP", n.Addr.String(),
				"is the address of a live host ("+n.MAC.String()+" on "+n.Dev+"), which would be taken off the network",
				"an unused address; or force=true (loxicmd --force)")
		}
	}
	return nil
}
