package balancer

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	v1 "loxilb/api/v1"
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

// ParsePeer reads ADDRESS:AS or ADDRESS:AS:PORT, with IPv6 addresses in brackets.
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

// setUpBGP configures BGP on a balancer that answers again, unless --setBGP is 0.
func (m *member) setUpBGP(ctx context.Context) error {
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
	var speakers v1.BgpSpeakerList
	if err := m.Client.do(ctx, http.MethodGet, "/config/bgp/global/all", nil, &speakers); err != nil {
		return fmt.Errorf("--setBGP: %w", err)
	}
	speaker := append(speakers.BgpGlobalAttr, v1.BgpSpeaker{})[0]
	speaker.RouterId, speaker.LocalAs, speaker.ListenPort = router, int64(b.AS), b.Port
	if err := m.Client.Post(ctx, "/config/bgp/global", speaker); err != nil {
		return fmt.Errorf("--setBGP: %w", err)
	}
	return m.setUpPeers(ctx)
}

// setUpPeers adds the neighbors. It keeps settings of the balancer's administrator, such as BFD or
// a password: a change would restart the session without them.
func (m *member) setUpPeers(ctx context.Context) error {
	var existing v1.BgpNeighborList
	if len(m.fleet.BGP.Peers) > 0 {
		if err := m.Client.do(ctx, http.MethodGet, "/config/bgp/neigh/all", nil, &existing); err != nil {
			return fmt.Errorf("--extBGPPeers: %w", err)
		}
	}
	for _, p := range m.fleet.BGP.Peers {
		n := v1.BgpNeighbor{IpAddress: p.Address.String()}
		for _, known := range existing.BgpNeiAttr {
			if known.IpAddress == n.IpAddress {
				n = known
			}
		}
		n.RemoteAs, n.RemotePort, n.SetMultiHop = int64(p.AS), p.Port, m.fleet.BGP.MultiHop
		if !n.SetMultiHop {
			n.MultihopTTL = 0
		}
		if err := m.Client.Post(ctx, "/config/bgp/neigh", n); err != nil {
			return fmt.Errorf("--extBGPPeers: %w", err)
		}
	}
	return nil
}

// routerID returns the IPv4 address of a host, or "" if it has none.
func routerID(ctx context.Context, host string) string {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", host)
	if err != nil || len(addrs) == 0 {
		return ""
	}
	return addrs[0].Unmap().String()
}
