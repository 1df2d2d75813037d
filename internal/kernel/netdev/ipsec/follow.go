package ipsec

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/netlink"
)

// Multicast groups of the kernel's uapi (linux/xfrm.h).
const (
	groupExpire = 2 // a policy that has a lifetime ends without a message of the other group
	groupPolicy = 4
)

const (
	followBuffer = 256 << 10
	// readEvery bounds how long a change that the kernel has not reported is overlooked.
	readEvery  = 30 * time.Second
	reopenWait = time.Second
)

// Follow calls changed whenever policies of a namespace may have changed, until ctx ends, and once
// at its start. It returns at once if the kernel has no IPsec.
func Follow(ctx context.Context, ns *netlink.Namespace, changed func()) {
	for ctx.Err() == nil {
		s, err := ns.SubscribeIPsec(followBuffer, groupExpire, groupPolicy)
		if errors.Is(err, unix.EPROTONOSUPPORT) {
			return
		}
		changed()
		if err == nil {
			receive(ctx, s, changed)
			_ = s.Close() // nothing is left to be read
		}
		select {
		case <-ctx.Done():
		case <-time.After(reopenWait):
		}
	}
}

// receive returns when the kernel no longer reports changes.
func receive(ctx context.Context, s *netlink.Subscription, changed func()) {
	last := time.Now()
	for ctx.Err() == nil {
		some := false
		err := s.Receive(ctx, func(netlink.Message) { some = true })
		if errors.Is(err, netlink.ErrOverrun) {
			some, err = true, s.Drain()
		}
		if err != nil {
			return
		}
		if some || time.Since(last) > readEvery {
			last = time.Now()
			changed()
		}
	}
}
