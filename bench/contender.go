package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"loxilb/test/netnstest"
)

// contender is a way from the client to the endpoints.
type contender struct {
	name      string
	about     string
	endpoints int     // it balances over
	proxy     bool    // ends the client's connections and opens its own
	local     bool    // no packet crosses an interface
	routes    bool    // the balancer's namespace forwards packets
	floods    bool    // for works of floods alone
	observe   observe // its table and drops; nil: what the kernel's own sockets say
	missing   func() error
	setup     setup
}

// setup makes a contender balance a service of a rig, and returns the address to connect to. What
// it makes goes with the rig.
type setup func(context.Context, *rig, service) (netip.AddrPort, error)

// errMissing says that this machine has not what a contender needs.
var errMissing = errors.New("not here")

// contenders returns the catalogue, in the order of reports.
func contenders() []contender {
	all := []contender{
		{name: baseline, about: "no load balancer: the client speaks to one endpoint, the balancer's namespace routes", endpoints: 1, routes: true, setup: routing},
		{name: "loxilb-one", about: "loxilb with that endpoint alone: plain routing's fair pair", endpoints: 1, observe: observeLoxilb, setup: loxilb("default")},
		{name: "loxilb-other", about: "the loxilb of another build, in the directory LOXILB_OTHER, with that endpoint alone", endpoints: 1, missing: noOther, observe: observeLoxilb, setup: loxilbOther},
		{name: "loxilb", about: "loxilb over three endpoints", endpoints: 3, observe: observeLoxilb, setup: loxilb("default")},
		{name: "nft", about: "nftables DNAT and conntrack, as kube-proxy writes it", endpoints: 3, routes: true, missing: needs("nft"), observe: observeConntrack, setup: nft},
		{name: "ipvs", about: "IPVS, masquerading, round robin", endpoints: 3, routes: true, missing: noIPVS, setup: ipvs},
		{name: "haproxy", about: "HAProxy, mode tcp, a thread for each CPU", endpoints: 3, proxy: true, missing: needs("haproxy"), setup: haproxy},
		{name: "nginx", about: "nginx stream, a worker for each CPU", endpoints: 3, proxy: true, missing: needs("nginx"), setup: nginx},
		{name: "nft-one", about: "nftables DNAT with that endpoint alone", endpoints: 1, routes: true, missing: needs("nft"), observe: observeConntrack, setup: nft},
		{name: "ipvs-one", about: "IPVS with that endpoint alone", endpoints: 1, routes: true, missing: noIPVS, setup: ipvs},
		{name: "haproxy-one", about: "HAProxy with that endpoint alone", endpoints: 1, proxy: true, missing: needs("haproxy"), setup: haproxy},
		{name: "nginx-one", about: "nginx with that endpoint alone", endpoints: 1, proxy: true, missing: needs("nginx"), setup: nginx},
		{name: "bare", about: "no load balancer: a tc program with fixed MAC addresses and redirect_peer, the least that one there can do", endpoints: 1, setup: bare},
		{name: "loopback", about: "client and endpoint in one namespace, over lo", endpoints: 1, local: true, setup: loopback},
		{name: "loxilb-onearm", about: "loxilb, mode onearm", endpoints: 3, observe: observeLoxilb, setup: loxilb("onearm")},
		{name: "loxilb-fullnat", about: "loxilb, mode fullnat", endpoints: 3, observe: observeLoxilb, setup: loxilb("fullnat")},
		{name: "loxilb-clsact", about: "loxilb --attach clsact", endpoints: 3, observe: observeLoxilb, setup: loxilb("default", "--attach", "clsact")},
		{name: "loxilb-xdp", about: "loxilb-one with --xdp native, and GRO at the other ends, so that they take frames from XDP", endpoints: 1, observe: observeLoxilb, setup: loxilbXDP},
		{name: "loxilb-redirect", about: "loxilb --redirect-peer=false", endpoints: 3, observe: observeLoxilb, setup: loxilb("default", "--redirect-peer=false")},
		{name: "loxilb-hostonearm", about: "loxilb, mode hostonearm", endpoints: 3, floods: true, observe: observeLoxilb, setup: loxilbHost},
		{name: "loxilb-dsr", about: "loxilb, mode dsr, endpoints on links of their own to the client", endpoints: 3, floods: true, observe: observeDirect, setup: loxilbDSR},
		{name: "nft-synproxy", about: "nft-one behind the kernel's SYN proxy", endpoints: 1, routes: true, floods: true, missing: needs("nft"), observe: observeConntrack, setup: nftSynproxy},
	}
	for i := range all {
		if all[i].missing == nil {
			all[i].missing = func() error { return nil }
		}
		if all[i].observe == nil {
			all[i].observe = observeKernel
		}
	}
	return all
}

// fairPair returns the contender of ours that balances over as many endpoints as another. Three
// servers on the CPUs of one cost more than any balancer does.
func fairPair(c string) string {
	if c == baseline || c == "bare" || strings.HasSuffix(c, "-one") {
		return "loxilb-one"
	}
	return "loxilb"
}

// contendersNamed returns those of the catalogue that are named, in its order; all that can run
// here when none is.
func contendersNamed(names []string) ([]contender, error) {
	all := contenders()
	for _, n := range names {
		i := slices.IndexFunc(all, func(c contender) bool { return c.name == n })
		if i < 0 {
			return nil, fmt.Errorf("contender %q is none; there are %s", n, list(all, func(c contender) string { return c.name }))
		}
		if err := all[i].missing(); err != nil {
			return nil, fmt.Errorf("contender %s: %w", n, err)
		}
	}
	return slices.DeleteFunc(all, func(c contender) bool {
		return len(names) > 0 && !slices.Contains(names, c.name) || c.missing() != nil
	}), nil
}

// routing is plain routing to the first endpoint.
func routing(_ context.Context, r *rig, s service) (netip.AddrPort, error) {
	return netip.AddrPortFrom(s.addressOf(r.serving[0]), uint16(s.target)), nil
}

// loopback has the client run where the first endpoint is.
func loopback(_ context.Context, r *rig, s service) (netip.AddrPort, error) {
	r.source = r.serving[0]
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(s.target)), nil
}

// endpointAddr returns the IPv4 address of a host of the topology.
func endpointAddr(h *netnstest.Host) netip.Addr { return service{}.addressOf(h) }

// ownVIP gives the VIP to the balancer's namespace, for those that need an address of their own.
func (r *rig) ownVIP(s service) error { return own(r.LB, s.vip()) }

// own gives a host an address that is no network's.
func own(h *netnstest.Host, a netip.Addr) error {
	return h.AddAddress("lo", netip.PrefixFrom(a, a.BitLen()))
}

// file writes a file of a contender and returns its path.
func (r *rig) file(name, content string) (string, error) {
	path := r.dir + "/" + name
	return path, os.WriteFile(path, []byte(content), 0o644)
}
