package main

import (
	"context"
	"errors"
	"net/netip"

	"loxilb/internal/announce"
	"loxilb/internal/netdev"
	"loxilb/internal/netdev/diagnosis"
)

// owner has a change of services fail for a VIP that could not be asked for, not for one that the network around keeps from
// working: that is a problem which is logged, and the data path sees packets before the kernel does.
type owner struct{ announcer *announce.Announcer }

func (o owner) Set(ctx context.Context, vips []netip.Addr) error {
	return failures(o.announcer.Set(ctx, vips))
}

func (o owner) Add(ctx context.Context, vips ...netip.Addr) error {
	return failures(o.announcer.Add(ctx, vips...))
}

func (o owner) Remove(ctx context.Context, vips ...netip.Addr) error {
	return failures(o.announcer.Remove(ctx, vips...))
}

func failures(failed map[netip.Addr]error) error {
	for _, err := range failed {
		if !errors.As(err, new(diagnosis.Problem)) {
			return err
		}
	}
	return nil
}

// sources leaves hosts without a source address out.
type sources struct{ *netdev.Sources }

func (s sources) Towards(ctx context.Context, hosts []netip.Addr) (map[netip.Addr]netip.Addr, error) {
	found, _, err := s.SourceAddresses(ctx, hosts)
	return found, err
}
