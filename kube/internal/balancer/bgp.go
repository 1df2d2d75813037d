package balancer

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// BGP is the desired BGP configuration of balancers.
type BGP struct {
	AS       uint32 // 0: none
	Port     int
	MultiHop bool
	Peers    []Peer
}

// Peer is a BGP neighbor of each balancer.
type Peer struct {
	Address netip.Addr
	AS      uint32
	Port    int
}

// ParsePeer reads ADDRESS:AS, or ADDRESS:AS:PORT. IPv6 addresses are in brackets.
func ParsePeer(text string) (p Peer, err error) {
	host, rest, ok := strings.Cut(text, ":")
	if strings.HasPrefix(text, "[") {
		host, rest, ok = strings.Cut(text[1:], "]:")
	}
	as, port, hasPort := strings.Cut(rest, ":")
	p.Address, err = netip.ParseAddr(host)
	number, err2 := strconv.ParseUint(as, 10, 32)
	if err != nil || err2 != nil || !ok || number == 0 {
		return p, fmt.Errorf("peer %q is not ADDRESS:AS or ADDRESS:AS:PORT", text)
	}
	p.AS = uint32(number)
	if hasPort {
		if p.Port, err = strconv.Atoi(port); err != nil || p.Port < 1 || p.Port > 65535 {
			return p, fmt.Errorf("peer %q: port %q is not a number from 1 to 65535", text, port)
		}
	}
	return p, nil
}

// setUp makes a balancer that has just answered speak BGP, if it should.
func (m *member) setUp(ctx context.Context) error {
	b := m.fleet.BGP
	if b.AS == 0 {
		return nil
	}
	u, err := url.Parse(m.URL)
	if err != nil {
		return err
	}
	router := routerID(ctx, u.Hostname())
	if router == "" {
		return fmt.Errorf("balancer %s has no IPv4 address for a BGP router ID", m.URL)
	}
	if err := m.Client.Post(ctx, "/config/bgp/global", map[string]any{"routerId": router, "localAs": b.AS, "listenPort": b.Port}); err != nil {
		return fmt.Errorf("--setBGP: %w", err)
	}
	for _, p := range b.Peers {
		body := map[string]any{"ipAddress": p.Address.String(), "remoteAs": p.AS, "setMultiHop": b.MultiHop}
		if p.Port != 0 {
			body["remotePort"] = p.Port
		}
		if err := m.Client.Post(ctx, "/config/bgp/neigh", body); err != nil {
			return fmt.Errorf("--extBGPPeers: %w", err)
		}
	}
	return nil
}

func routerID(ctx context.Context, host string) string {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", host)
	if err != nil || len(addrs) == 0 {
		return ""
	}
	return addrs[0].Unmap().String()
}
