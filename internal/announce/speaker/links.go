package speaker

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/osrg/gobgp/v4/api"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/host/monotime"
)

// watchLinks ends sessions whose link goes down, until ctx ends. gobgp itself would keep such a
// session until its hold time is over, and refuse the neighbor's new connections until then.
func (e *engine) watchLinks(ctx context.Context) {
	for ctx.Err() == nil {
		if err := e.receiveLinks(ctx); err != nil {
			e.log.Warn("link changes cannot be followed; trying again", "error", err)
		}
		monotime.Sleep(ctx, retryTime)
	}
}

// receiveLinks reads link changes until the subscription ends.
func (e *engine) receiveLinks(ctx context.Context) error {
	updates := make(chan netlink.LinkUpdate, 64)
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := netlink.LinkSubscribeWithOptions(updates, ctx.Done(), netlink.LinkSubscribeOptions{
		ListExisting: true, // changes before this or after a failure
		ErrorCallback: func(err error) {
			select {
			case failed <- err:
			default:
			}
		},
	})
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	for u := range updates {
		if u.Header.Type == unix.RTM_DELLINK || u.IfInfomsg.Flags&unix.IFF_RUNNING == 0 {
			e.linkDown(int(u.Index))
		}
	}
	select {
	case err = <-failed:
	default:
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// linkDown ends the sessions that use a link.
func (e *engine) linkDown(index int) {
	e.owner.mu.Lock()
	defer e.owner.mu.Unlock()
	if e.owner.engine != e {
		return
	}
	for _, p := range e.peers {
		if p.status.established && p.link == index {
			e.reset(p, "link down")
		}
	}
}

// reset ends a session, which then begins again.
func (e *engine) reset(p *peer, reason string) {
	e.log.Info("BGP session is reset", "neighbor", p.key, "reason", reason)
	e.disableBFD(p)
	r := &api.ResetPeerRequest{Address: p.addr, Communication: reason}
	e.logUnchanged(p, e.server.ResetPeer(context.Background(), r))
}

// linkTo returns the index of the link to a neighbor on a connected network; 0: none.
func linkTo(addr string, multihop uint8) int {
	a, err := netip.ParseAddr(addr)
	if err != nil || multihop > 0 {
		return 0
	}
	if a.Zone() != "" {
		if i, err := net.InterfaceByName(a.Zone()); err == nil {
			return i.Index
		}
		return 0
	}
	routes, err := netlink.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 || routes[0].Gw != nil {
		return 0
	}
	return routes[0].LinkIndex
}
