package machine

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// AcceptedConnection is a TCP connection that this machine itself has accepted, such as SSH.
type AcceptedConnection struct {
	Remote, Local netip.AddrPort
	Interface     string // with the local address; "": lo, whose packets may arrive at any interface
}

// maxAccepted bounds the listed connections, SSH first.
const maxAccepted = 4096

// AcceptedConnections returns the connections from outside in the thread's network namespace.
func AcceptedConnections() ([]AcceptedConnection, error) {
	own, err := addressInterfaces()
	if err != nil {
		return nil, err
	}
	var all []AcceptedConnection
	listens := map[uint16]bool{}
	err = TCPSockets("/proc/thread-self", func(s TCPSocket) {
		switch s.State {
		case TCPListen:
			listens[s.Local.Port()] = true
		case TCPEstablished:
			all = append(all, AcceptedConnection{Remote: s.Remote, Local: s.Local})
		}
	})
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s AcceptedConnection) bool {
		_, here := own[s.Remote.Addr()]
		return here || s.Remote.Addr().IsLoopback() || !listens[s.Local.Port()]
	})
	slices.SortFunc(all, func(a, b AcceptedConnection) int { return cmp.Compare(acceptedRank(a), acceptedRank(b)) })
	all = all[:min(len(all), maxAccepted)]
	for i := range all {
		all[i].Interface = own[all[i].Local.Addr()]
	}
	return all, nil
}

// HasAddress reports whether the list has an address of the network namespace, or the
// unspecified address.
func HasAddress(list []netip.Addr) (bool, error) {
	if len(list) == 0 || slices.ContainsFunc(list, netip.Addr.IsUnspecified) {
		return true, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("list addresses: %w", err)
	}
	wanted := make(map[netip.Addr]bool, len(list))
	for _, a := range list {
		wanted[a] = true
	}
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && wanted[p.Addr().Unmap()]
	}), nil
}

// acceptedRank returns the position of a connection in the list: SSH comes first.
func acceptedRank(s AcceptedConnection) int {
	if s.Local.Port() == 22 {
		return 0
	}
	return 1
}

// addressInterfaces returns the interface of each address of this machine; "" for addresses of lo,
// whose packets may arrive at any interface.
func addressInterfaces() (map[netip.Addr]string, error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	own := map[netip.Addr]string{}
	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			own[p.Addr().Unmap()] = l.Name
			if l.Flags&net.FlagLoopback != 0 {
				own[p.Addr().Unmap()] = ""
			}
		}
	}
	return own, nil
}
