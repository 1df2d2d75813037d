package netdev

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"loxilb/internal/netdev/netlink"
)

// Sources finds the source addresses that packets of this machine have: it asks the kernel for routes.
type Sources struct {
	mu   sync.Mutex
	conn *netlink.Conn
}

func openSources(ns *netlink.Namespace) (*Sources, error) {
	conn, err := ns.Dial()
	if err != nil {
		return nil, err
	}
	return &Sources{conn: conn}, nil
}

func (s *Sources) close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn.Close()
}

// SourceAddresses asks the kernel which address of this machine packets to each of the hosts would have: that of the
// longest route, or of the interface that it leads through. missing says of each other host why it has none: no route, an
// address of this machine itself, only a link-local address reaches it. err is the socket's or the context's: hosts in
// neither map were not asked. It costs about 3 us a host.
func (s *Sources) SourceAddresses(ctx context.Context, hosts []netip.Addr) (found map[netip.Addr]netip.Addr, missing map[netip.Addr]error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, missing = make(map[netip.Addr]netip.Addr, len(hosts)), map[netip.Addr]error{}
	err = s.conn.LookUp(ctx, hosts, func(i int, rt netlink.Route, err error) {
		switch host := hosts[i]; {
		case err != nil:
			missing[host] = fmt.Errorf("look up the route to %s: %w", host, err)
		case rt.Kind == unix.RTN_LOCAL:
			missing[host] = fmt.Errorf("%s is an address of this machine", host)
		case rt.Kind != unix.RTN_UNICAST:
			missing[host] = fmt.Errorf("the route to %s is no route to a single host", host)
		case !rt.Source.IsGlobalUnicast():
			missing[host] = fmt.Errorf("this machine has no address towards %s that others can reach", host)
		default:
			found[host] = rt.Source
		}
	})
	return found, missing, err
}
