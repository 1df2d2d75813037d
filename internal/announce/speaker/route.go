package speaker

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	gobgp "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"loxilb/internal/lb/bgp"
)

func sameAttributes(a, b bgp.Attributes) bool {
	return a.MED == b.MED && a.LocalPref == b.LocalPref && a.Prepend == b.Prepend && slices.Equal(a.Communities, b.Communities)
}

// applyRoutes gives gobgp the routes that differ.
func (e *engine) applyRoutes(want map[netip.Prefix]bgp.Attributes) error {
	var remove, add []*apiutil.Path
	for prefix := range e.routes {
		if _, stays := want[prefix]; stays {
			continue
		}
		p, err := e.path(prefix, bgp.Attributes{})
		if err != nil {
			return err
		}
		remove = append(remove, p)
	}
	for prefix, a := range want {
		if before, is := e.routes[prefix]; is && sameAttributes(before, a) {
			continue
		}
		p, err := e.path(prefix, a)
		if err != nil {
			return err
		}
		add = append(add, p)
	}
	e.sent.stale = e.sent.stale || len(remove)+len(add) > 0
	if len(remove) > 0 {
		if err := e.server.DeletePath(apiutil.DeletePathRequest{Paths: remove}); err != nil {
			return fmt.Errorf("withdraw routes: %w", err)
		}
	}
	if len(add) > 0 {
		if _, err := e.server.AddPath(apiutil.AddPathRequest{Paths: add}); err != nil {
			return fmt.Errorf("announce routes: %w", err)
		}
	}
	e.routes = want
	return nil
}

// path returns a route as gobgp takes it. Its next hop is unspecified: gobgp sends the local
// address of each session instead.
func (e *engine) path(prefix netip.Prefix, a bgp.Attributes) (*apiutil.Path, error) {
	nlri, err := gobgp.NewIPAddrPrefix(prefix)
	if err != nil {
		return nil, fmt.Errorf("prefix %v: %w", prefix, err)
	}
	attributes := []gobgp.PathAttributeInterface{gobgp.NewPathAttributeOrigin(gobgp.BGP_ORIGIN_ATTR_TYPE_IGP)}
	family := gobgp.RF_IPv4_UC
	if prefix.Addr().Is4() {
		next, err := gobgp.NewPathAttributeNextHop(netip.IPv4Unspecified())
		if err != nil {
			return nil, fmt.Errorf("next hop of %v: %w", prefix, err)
		}
		attributes = append(attributes, next)
	} else {
		family = gobgp.RF_IPv6_UC
		reach, err := gobgp.NewPathAttributeMpReachNLRI(family, []gobgp.PathNLRI{{NLRI: nlri}}, netip.IPv6Unspecified())
		if err != nil {
			return nil, fmt.Errorf("next hop of %v: %w", prefix, err)
		}
		attributes = append(attributes, reach)
	}
	attributes = append(attributes, gobgp.NewPathAttributeMultiExitDisc(a.MED))
	if a.LocalPref != 0 {
		attributes = append(attributes, gobgp.NewPathAttributeLocalPref(a.LocalPref))
	}
	if len(a.Communities) > 0 {
		values := make([]uint32, len(a.Communities))
		for i, c := range a.Communities {
			values[i] = uint32(c)
		}
		attributes = append(attributes, gobgp.NewPathAttributeCommunities(values))
	}
	if a.Prepend > 0 {
		mark := &gobgp.LargeCommunity{ASN: e.config.ASN, LocalData2: uint32(a.Prepend)}
		attributes = append(attributes, gobgp.NewPathAttributeLargeCommunities([]*gobgp.LargeCommunity{mark}))
	}
	return &apiutil.Path{Family: family, Nlri: nlri, Attrs: attributes}, nil
}
