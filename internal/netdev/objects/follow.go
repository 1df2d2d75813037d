package objects

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/netdev/netlink"
	"loxilb/internal/netobj"
)

// followBytes is the receive buffer for what changes. Of what is lost nothing is missed: all is looked at again.
const followBytes = 1 << 20

// Follow calls changed with kinds of which objects may have come or gone, until ctx ends. What it misses for an error it tells when it
// follows again.
func (k *Kernel) Follow(ctx context.Context, log *slog.Logger, changed func(kinds ...string)) {
	for ctx.Err() == nil {
		err := k.follow(ctx, changed)
		if ctx.Err() != nil {
			return
		}
		log.Warn("changes of the kernel's objects are followed anew", "reason", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (k *Kernel) follow(ctx context.Context, changed func(kinds ...string)) error {
	s, err := k.ns.Subscribe(followBytes, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // nothing was written
	changed(netobj.Kinds()...)
	for {
		kinds := map[string]struct{}{}
		err := s.Receive(ctx, func(m netlink.Message) {
			for _, kind := range kindsOf(m.Type) {
				kinds[kind] = struct{}{}
			}
		})
		if errors.Is(err, netlink.ErrOverrun) {
			err = s.Drain()
			changed(netobj.Kinds()...)
		}
		if err != nil {
			return err
		}
		for kind := range kinds {
			changed(kind)
		}
	}
}

// kindsOf are the kinds that a message may be about.
func kindsOf(message uint16) []string {
	switch message {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return netobj.Kinds()
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return []string{netobj.AddressKind, netobj.VXLANKind}
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return []string{netobj.RouteKind}
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return []string{netobj.NeighborKind, netobj.FDBKind, netobj.VXLANPeerKind}
	}
	return nil
}
