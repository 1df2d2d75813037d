package main

import (
	"context"
	"errors"
	"net/netip"

	"loxilb/internal/announce"
	"loxilb/internal/netdev/diagnosis"
)

// owner has a service fail for a VIP that could not be asked for, not for one that the network around keeps from
// working: that is a problem which is logged, and the data path sees packets before the kernel does.
type owner struct{ announce.Owner }

func (o owner) Set(ctx context.Context, vips []netip.Addr) map[netip.Addr]error {
	return failures(o.Owner.Set(ctx, vips))
}

func (o owner) Add(ctx context.Context, vips ...netip.Addr) map[netip.Addr]error {
	return failures(o.Owner.Add(ctx, vips...))
}

func (o owner) Remove(ctx context.Context, vips ...netip.Addr) map[netip.Addr]error {
	return failures(o.Owner.Remove(ctx, vips...))
}

func failures(failed map[netip.Addr]error) map[netip.Addr]error {
	for a, err := range failed {
		if errors.As(err, new(diagnosis.Problem)) {
			delete(failed, a)
		}
	}
	return failed
}
