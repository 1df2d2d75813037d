package objects

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/netdev/netlink"
	"loxilb/internal/lb/netobj"
)

// followBytes is the receive buffer for changes. Lost messages do no harm: everything is compared
// again.
const followBytes = 1 << 20

// Follow calls changed with a kind whose objects may have changed, until ctx ends: the objects of
// keys, or any if keys is nil. After an error it reports every kind.
func (k *Kernel) Follow(ctx context.Context, log *slog.Logger, changed func(kind string, keys []string)) {
	for ctx.Err() == nil {
		err := k.follow(ctx, changed)
		if ctx.Err() != nil {
			return
		}
		log.Warn("following changes of kernel objects again", "reason", err)
		monotime.Sleep(ctx, time.Second)
	}
}

func (k *Kernel) follow(ctx context.Context, changed func(kind string, keys []string)) error {
	s, err := k.ns.Subscribe(followBytes, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // nothing was written
	everything := func() {
		for _, kind := range netobj.Kinds() {
			changed(kind, nil)
		}
	}
	everything()
	for {
		kinds, routes := map[string]struct{}{}, map[string]struct{}{}
		err := s.Receive(ctx, func(m netlink.Message) {
			for _, kind := range kindsOf(m) {
				kinds[kind] = struct{}{}
			}
			if m.Type == unix.RTM_NEWROUTE || m.Type == unix.RTM_DELROUTE {
				for _, w := range parseHopRoutes(m.Body) {
					routes[w.Key()] = struct{}{}
				}
			}
		})
		if errors.Is(err, netlink.ErrOverrun) {
			err = s.Drain()
			everything()
		}
		if err != nil {
			return err
		}
		for kind := range kinds {
			changed(kind, nil)
		}
		if len(routes) > 0 {
			changed(netobj.RouteKind, slices.Collect(maps.Keys(routes)))
		}
	}
}

// kindsOf returns the kinds that a message may concern without naming the object. A message about a
// route names it. The kernel does not report IPv4 routes removed with the last address of an
// interface.
func kindsOf(m netlink.Message) []string {
	switch m.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return netobj.Kinds()
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return []string{netobj.AddressKind, netobj.VXLANKind, netobj.RouteKind}
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		if len(m.Body) > 0 && m.Body[0] != unix.AF_BRIDGE {
			return []string{netobj.NeighborKind}
		}
		return []string{netobj.FDBKind, netobj.VXLANPeerKind}
	}
	return nil
}
