package netdev

import (
	"context"
	"errors"
	"fmt"
)

// Remove takes out of the kernel all that this package put there, of this process or an earlier one: VIPs, managed
// neighbours, and the forwarding of lo, which becomes that of all interfaces again. Not while Run runs.
func (n *Net) Remove(ctx context.Context) error {
	return errors.Join(n.vips.Set(ctx, nil), n.warmer.clear(ctx), n.stopForwarding())
}

func (w *Warmer) clear(ctx context.Context) error {
	w.mu.Lock()
	clear(w.paths)
	clear(w.lookup)
	w.spoken = true
	w.mu.Unlock()
	if err := w.work(ctx); err != nil {
		return fmt.Errorf("leave neighbours to themselves: %w", err)
	}
	return nil
}

func (n *Net) stopForwarding() error {
	var errs []error
	for _, family := range []string{"ipv4", "ipv6"} {
		all, err := n.sysctl(family + "/conf/all/forwarding")
		if err != nil || all == 1 { // no such family, or lo is to forward
			continue
		}
		if err := n.setSysctl(family+"/conf/lo/forwarding", 0); err != nil {
			errs = append(errs, fmt.Errorf("set net.%s.conf.lo.forwarding=0: %w", family, err))
		}
	}
	return errors.Join(errs...)
}
