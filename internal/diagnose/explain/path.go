package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/dryrun"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// addPath adds how the packet leaves.
func (i *inquiry) addPath(r *dryrun.Result, s *lb.Service) error {
	if r.Entry == nil || r.Outcome != dryrun.Forwards && r.Outcome != dryrun.Delivers && r.Reason == "" {
		return nil
	}
	if r.Reason != "" && !isPathReason(r.Reason) {
		return nil
	}
	target := recipient(r.Entry)
	route, err := i.Network.RouteTo(i.ctx, target)
	if err != nil {
		return err
	}
	if r.Outcome == dryrun.Delivers || r.NextHop != nil && r.NextHop.Local {
		i.answer.add("way", OK, "%s is this machine: a local socket receives it", target)
		return nil
	}
	i.addNextHop(r, &route, target)
	i.addMTU(r, s, &route)
	return nil
}

// recipient returns the address to which the packet is routed.
func recipient(e *dryrun.Entry) netip.Addr {
	if e.Direct {
		return e.Endpoint.Addr()
	}
	return e.Target.Addr()
}

// isPathReason reports whether a drop reason means that no usable path exists.
func isPathReason(reason string) bool {
	return slices.Contains([]string{"no-route", "route-unreachable", "forwarding-off", "route-encap", "too-big", "dsr-routed"}, reason)
}

func (i *inquiry) addNextHop(r *dryrun.Result, route *netdev.HostRoute, target netip.Addr) {
	a, w := &i.answer, r.NextHop
	via := target
	if route.Gateway.IsValid() {
		via = route.Gateway
	}
	switch {
	case w != nil:
		out := route.Link
		for _, l := range i.Network.Links() {
			if l.Index == w.Ifindex {
				out = l
			}
		}
		a.Interface, a.MTU, a.Gateway, a.MAC = out.Name, w.MTU, w.Gateway, w.MAC.String()
		if !w.Gateway.IsValid() {
			a.add("way", OK, "leaves through %s, MTU %d", out.Name, w.MTU)
			break
		}
		through := ""
		if w.Gateway != target {
			through = "the gateway "
		}
		a.add("way", OK, "leaves through %s to %s%s (%s), MTU %d", out.Name, through, w.Gateway, w.MAC, w.MTU)
		if r.Reason == "" && route.Missing == nil && route.Link.Index != w.Ifindex {
			a.add("way", Warning, "the kernel's route uses %s now: the connection follows within 33 s", route.Link.Name)
		}
	case route.Missing != nil:
		a.add("way", Failed, "%s", missingRoute(target, route.Missing))
		return
	case route.Silent:
		a.Interface, a.Gateway = route.Link.Name, via
		a.add("way", Failed, "leaves through %s to %s, which does not answer %s: the kernel holds the packet for a while, then drops it", route.Link.Name, via, resolution(via))
		return
	default:
		a.Interface, a.Gateway = route.Link.Name, via
		a.add("way", Warning, "leaves through %s to %s, whose MAC address is not known yet: the kernel resolves it, then sends the packet", route.Link.Name, via)
	}
	if route.Silent {
		a.add("way", Failed, "%s currently does not answer %s: packets to its last MAC address get no answer", via, resolution(via))
	}
	if route.Missing == nil && !route.Link.Running() {
		a.add("way", Failed, "%s is down or has no carrier", route.Link.Name)
	}
}

// missingRoute describes why a route lookup failed: a route of type blackhole, for example, is an
// invalid argument to the kernel.
func missingRoute(to netip.Addr, err error) string {
	if errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINVAL) {
		return fmt.Sprintf("the route to %s refuses packets: it is unreachable, prohibit or blackhole", to)
	}
	return fmt.Sprintf("no route to %s: %v", to, err)
}

func resolution(a netip.Addr) string {
	if a.Is4() {
		return "ARP"
	}
	return "neighbour discovery"
}

// outer returns the outer header of a frame in a tunnel.
func outer(frame []byte) string {
	p := pkt.Decode(frame)
	if p.Proto == pkt.UDP {
		return fmt.Sprintf("GUE, the outer header %s > %s", p.SrcAddr(), p.DstAddr())
	}
	return fmt.Sprintf("IP in IP, the outer header %s > %s", p.SrcAddr().Addr(), p.DstAddr().Addr())
}

// proxyHeader returns the length of the PROXY protocol header with the client's address.
func (i *inquiry) proxyHeader() int {
	if i.From.Addr().Is4() {
		return 28
	}
	return 52
}

// addMTU adds whether larger packets fit.
func (i *inquiry) addMTU(r *dryrun.Result, s *lb.Service, route *netdev.HostRoute) {
	a := &i.answer
	mtu := a.MTU
	if mtu == 0 {
		if mtu = route.Link.MTU; mtu == 0 {
			return
		}
	}
	if r.Entry.Tunnels {
		a.add("way", OK, "in a tunnel: %s; packets of up to %d bytes fit", outer(r.Frame), mtu)
	}
	if s != nil && s.ProxyProtocol {
		header := i.proxyHeader()
		a.add("header", OK, "a PROXY protocol header of %d bytes precedes the client's data; SYN+ACKs leave room for it in the client's segments", header)
		mtu += header
	}
	if mtu < i.in.MTU {
		clamp := "--mss keeps TCP below it"
		if s != nil && s.MSS > 0 {
			clamp = fmt.Sprintf("--mss limits TCP to segments of %d", s.MSS)
		}
		a.add("mtu", Warning, "packets over %d bytes do not fit there, but %s receives up to %d: senders get an ICMP error, which firewalls often drop; %s", mtu, i.in.Name, i.in.MTU, clamp)
	}
	if i.in.MTU > 0 && i.in.MTU < mtu {
		a.add("mtu", Warning, "answers over %d bytes do not fit %s, but %s receives up to %d: the endpoint gets an ICMP error; --mss keeps TCP below it", i.in.MTU, i.in.Name, route.Link.Name, mtu)
	}
}
