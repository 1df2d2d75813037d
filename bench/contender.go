package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"loxilb/test/netnstest"
)

// contender is a path from the client to the endpoints.
type contender struct {
	name      string
	about     string
	endpoints int      // it balances over
	proxy     bool     // ends the client's connections and opens its own
	local     bool     // no packet crosses an interface
	routes    bool     // the balancer's namespace forwards packets
	floods    bool     // for workloads of floods alone
	observe   observer // its table and drops; nil: from the kernel's own sockets
	missing   func() error
	setup     setup
}

// setup configures a contender to balance a service of a rig, and returns the address to connect
// to. Everything it makes ends with the rig.
type setup func(context.Context, *rig, service) (netip.AddrPort, error)

// errMissing reports that this machine lacks a program or feature of a contender.
var errMissing = errors.New("not here")

// contenders returns the catalogue, in the order of reports.
func contenders() []contender {
	all := []contender{
		{name: baseline, about: "no load balancer: the client speaks to one endpoint, the balancer's namespace routes", endpoints: 1, routes: true, setup: routing},
		{name: "loxilb-one", about: "loxilb with that endpoint alone, to compare with plain routing", endpoints: 1, observe: observeLoxilb, setup: loxilb("default")},
		{name: "loxilb-other", about: "the loxilb of another build, in the directory LOXILB_OTHER, with that endpoint alone", endpoints: 1, missing: checkOtherBuild, observe: observeLoxilb, setup: loxilbOther},
		{name: "loxilb", about: "loxilb over three endpoints", endpoints: 3, observe: observeLoxilb, setup: loxilb("default")},
		{name: "nft", about: "nftables DNAT and conntrack, as kube-proxy writes it", endpoints: 3, routes: true, missing: needs("nft"), observe: observeConntrack, setup: nft},
		{name: "ipvs", about: "IPVS, masquerading, round robin", endpoints: 3, routes: true, missing: noIPVS, setup: ipvs},
		{name: "haproxy", about: "HAProxy, mode tcp, a thread for each CPU", endpoints: 3, proxy: true, missing: needs("haproxy"), setup: haproxy},
		{name: "nginx", about: "nginx stream, a worker for each CPU", endpoints: 3, proxy: true, missing: needs("nginx"), setup: nginx},
		{name: "nft-one", about: "nftables DNAT with that endpoint alone", endpoints: 1, routes: true, missing: needs("nft"), observe: observeConntrack, setup: nft},
		{name: "ipvs-one", about: "IPVS with that endpoint alone", endpoints: 1, routes: true, missing: noIPVS, setup: ipvs},
		{name: "haproxy-one", about: "HAProxy with that endpoint alone", endpoints: 1, proxy: true, missing: needs("haproxy"), setup: haproxy},
		{name: "nginx-one", about: "nginx with that endpoint alone", endpoints: 1, proxy: true, missing: needs("nginx"), setup: nginx},
		{name: "bare", about: "no load balancer: a tc program with fixed MAC addresses and redirect_peer, the minimum of any program at tc", endpoints: 1, setup: startBare},
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

// counterpart returns the contender of loxilb with the same number of endpoints as c. Results with
// one and with three endpoints cannot be compared: on one machine, two more servers cost more CPU
// time than any balancer.
func counterpart(c string) string {
	if c == baseline || c == "bare" || strings.HasSuffix(c, "-one") {
		return "loxilb-one"
	}
	return "loxilb"
}

// contendersNamed returns the named contenders in the order of the catalogue, or all that can run
// here if no name is given.
func contendersNamed(names []string) ([]contender, error) {
	all := contenders()
	for _, n := range names {
		i := slices.IndexFunc(all, func(c contender) bool { return c.name == n })
		if i < 0 {
			return nil, fmt.Errorf("contender %q is unknown (allowed: %s)", n, list(all, func(c contender) string { return c.name }))
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

// loopback runs the client in the namespace of the first endpoint.
func loopback(_ context.Context, r *rig, s service) (netip.AddrPort, error) {
	r.source = r.serving[0]
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(s.target)), nil
}

// endpointAddr returns the IPv4 address of a host of the topology.
func endpointAddr(h *netnstest.Host) netip.Addr { return service{}.addressOf(h) }

// ownVIP adds the VIP to the balancer's namespace, for contenders that need it as an own address.
func (r *rig) ownVIP(s service) error { return addAddress(r.LB, s.vip()) }

// addAddress adds a single address to a host, without a network.
func addAddress(h *netnstest.Host, a netip.Addr) error {
	return h.AddAddress("lo", netip.PrefixFrom(a, a.BitLen()))
}

// file writes a file of a contender and returns its path.
func (r *rig) file(name, content string) (string, error) {
	path := r.dir + "/" + name
	return path, os.WriteFile(path, []byte(content), 0o644)
}

// service is the service that a contender balances for a workload.
type service struct {
	name         string
	protocol     string   // tcp, udp or sctp
	port, target int      // of the VIP, of the endpoints
	udp          int      // port of an additional UDP service, the same at the VIP and the endpoints; 0: none
	tcp          int      // port of a second TCP service, the same at the VIP and the endpoints; 0: none
	v6           bool     // over IPv6
	endpoints    int      // 0: all that the contender can use
	held         int      // number of simultaneous connections, if large
	options      []string // of loxilb's service
	helper       string   // the kernel's helper for related connections; empty: none
	serverIDs    bool     // endpoints have server IDs of QUIC: serverID()
	serve        func(context.Context, *rig, *netnstest.Host) error
}

// vip returns the address of every service. No interface has it; contenders that need it on an
// interface add it to lo.
func (s service) vip() netip.Addr {
	if s.v6 {
		return netip.MustParseAddr("2001:db8:20::1")
	}
	return netip.MustParseAddr("20.20.20.1")
}

// address returns the VIP with the service's port.
func (s service) address() netip.AddrPort { return netip.AddrPortFrom(s.vip(), uint16(s.port)) }

// balancedPort is a balanced port of the VIP and its port at the endpoints.
type balancedPort struct {
	protocol     string
	port, target int
}

// at returns the target port at an endpoint's address.
func (p balancedPort) at(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, uint16(p.target)) }

// ports returns all balanced ports, the service's own first.
func (s service) ports() []balancedPort {
	out := []balancedPort{{s.protocol, s.port, s.target}}
	if s.tcp > 0 {
		out = append(out, balancedPort{"tcp", s.tcp, s.tcp})
	}
	if s.udp > 0 {
		out = append(out, balancedPort{"udp", s.udp, s.udp})
	}
	return out
}

// addressOf returns the address of a host of the topology, in the service's family.
func (s service) addressOf(h *netnstest.Host) netip.Addr {
	for _, n := range netnstest.StandardNetworks() {
		if n.Host == h.Name {
			if s.v6 {
				return n.V6.Addr()
			}
			return n.V4.Addr()
		}
	}
	return netip.Addr{}
}

// addresses returns the endpoints' addresses.
func (s service) addresses(r *rig) (out []netip.Addr) {
	for _, h := range r.serving {
		out = append(out, s.addressOf(h))
	}
	return out
}

// direct returns the address of one end of the link that joins an endpoint to the client.
func (s service) direct(endpoint int, end byte) netip.Prefix {
	if s.v6 {
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 0x44, 0, byte(endpoint), 15: end}), 64)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{44, 44, byte(endpoint), end}), 24)
}

// clients returns the networks that clients of many addresses connect from; all addresses of the
// second are the client's own.
func (s service) clients() []netip.Prefix {
	n := netnstest.StandardNetworks()[0]
	if s.v6 {
		return []netip.Prefix{n.V6.Masked(), manyV6()}
	}
	return []netip.Prefix{n.V4.Masked(), manyV4()}
}

// startBare returns the lower bound of any load balancer at the tc hook. The client addresses the
// endpoint itself; a program writes the known MAC addresses of the next hop and bypasses the veth's
// queue. It looks up, translates, counts and checks nothing.
func startBare(_ context.Context, r *rig, s service) (netip.AddrPort, error) {
	endpoint := r.serving[0]
	for _, ends := range [][2]*netnstest.Host{{r.Client, endpoint}, {endpoint, r.Client}} {
		if err := r.bareRoute(ends[0], ends[1]); err != nil {
			return netip.AddrPort{}, err
		}
	}
	return netip.AddrPortFrom(endpointAddr(endpoint), uint16(s.target)), nil
}

// bareRoute forwards packets from one host to another.
func (r *rig) bareRoute(from, to *netnstest.Host) error {
	return r.LB.Do(func() error {
		in, err := r.LB.Netlink().LinkByName(from.Name)
		if err != nil {
			return fmt.Errorf("find the interface to %s: %w", from.Name, err)
		}
		out, err := r.LB.Netlink().LinkByName(to.Name)
		if err != nil {
			return fmt.Errorf("find the interface to %s: %w", to.Name, err)
		}
		dst, err := to.MAC("eth0")
		if err != nil {
			return err
		}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Type: ebpf.SchedCLS, License: "GPL",
			Instructions: bareProgram(append(dst, out.Attrs().HardwareAddr...), out.Attrs().Index),
		})
		if err != nil {
			return fmt.Errorf("load the bare program: %w", err)
		}
		l, err := link.AttachTCX(link.TCXOptions{Interface: in.Attrs().Index, Program: p, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return errors.Join(fmt.Errorf("attach the bare program: %w", err), p.Close())
		}
		r.Cleanup(func() { _ = errors.Join(l.Close(), p.Close()) })
		return nil
	})
}

// bareProgram writes these addresses into IPv4 frames, destination first, and redirects them to the
// other end of an interface's veth. It passes other frames.
func bareProgram(macs net.HardwareAddr, ifindex int) asm.Instructions {
	p := append(packetOf(34),
		asm.LoadMem(asm.R1, asm.R7, 12, asm.Half),
		asm.JNE.Imm(asm.R1, 0x0008, toHost), // 0x0800 as a little-endian machine reads it
	)
	for i, b := range macs {
		p = append(p, asm.StoreImm(asm.R7, int16(i), int64(b), asm.Byte))
	}
	return append(p,
		asm.Mov.Imm(asm.R1, int32(ifindex)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirectPeer.Call(), asm.Return(),
		asm.Mov.Imm(asm.R0, -1).WithSymbol(toHost), asm.Return()) // TCX_NEXT
}
