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

// setUpPeers adds the neighbors. What an administrator of the balancer has set, such as BFD or a
// password, stays: to take it away would end the session, and open it again without that.
func (m *member) setUpPeers(ctx context.Context) error {
	var present v1.BgpNeighborList
	if len(m.fleet.BGP.Peers) > 0 {
		if err := m.Client.do(ctx, http.MethodGet, "/config/bgp/neigh/all", nil, &present); err != nil {
			return fmt.Errorf("--extBGPPeers: %w", err)
		}
	}
	for _, p := range m.fleet.BGP.Peers {
		n := v1.BgpNeighbor{IpAddress: p.Address.String()}
		for _, one := range present.BgpNeiAttr {
			if one.IpAddress == n.IpAddress {
				n = one
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

func routerID(ctx context.Context, host string) string {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", host)
	if err != nil || len(addrs) == 0 {
		return ""
	}
	return addrs[0].Unmap().String()
}
