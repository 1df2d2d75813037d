package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"loxilb/internal/announce"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/reconcile"
	"loxilb/internal/control/status"
	"loxilb/internal/event"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/kernel/netdev/objects"
	"loxilb/internal/lb"
	"loxilb/internal/lb/netobj"
)

// isOwnAddress reports whether an address of this machine is reachable from others and no VIP.
func (p *daemon) isOwnAddress(a netip.Addr) bool { return a.IsGlobalUnicast() && p.network.HasOwn(a) }

// networkProblems returns a failed status for each current problem of the network.
func networkProblems(n *netdev.Net) []status.Status {
	known := n.Problems()
	out := make([]status.Status, len(known))
	for i, p := range known {
		out[i] = status.Status{ID: status.ID{Kind: p.Kind, Key: p.Key}, Desired: 1, Since: p.Since, Err: p.Problem, Attempts: 1}
	}
	return out
}

// followProblems adds the problems that other parts find to the problems of the network.
func (p *daemon) followProblems() {
	look := p.network.AddProblemSource(func() []netdev.Problem {
		return slices.Concat(asymmetricReplies(p.health.AsymmetricReplies()), ipsecProblems(p.ipsec), p.duplicates.Problems(), p.excludedInterfaces())
	})
	p.duplicates = announce.NewDuplicates(p.network, p.announcer, look, p.log)
	p.health.FollowAsymmetricReplies(look)
	p.ipsec.FollowRefusals(look)
}

// excludedInterfaces returns a problem for each interface that leads to endpoints and has no loxilb
// program. It ignores services in mode dsr, whose answers do not pass this machine.
func (p *daemon) excludedInterfaces() []netdev.Problem {
	i := p.interfaces.InterfacesConfig
	if i.Whitelist == nil && i.Blacklist == nil {
		return nil
	}
	answers := map[netip.Addr]bool{}
	for s := range p.state.Services.EachShared(p.state.Snapshot()) {
		for _, e := range s.Endpoints {
			if s.Mode != lb.ModeDSR {
				answers[e.Addr] = true
			}
		}
	}
	chosen := netdev.Select(p.network.Links(), i.Whitelist, i.Blacklist)
	return p.network.Neighbours().Excluded(chosen, func(a netip.Addr) bool { return answers[a] })
}

// asymmetricReplies returns a problem for each endpoint whose answers to clients bypass this
// machine.
func asymmetricReplies(endpoints []netip.AddrPort) []netdev.Problem {
	list := make([]netdev.Problem, len(endpoints))
	for i, at := range endpoints {
		list[i] = netdev.Problem{
			Kind: netdev.NeighbourKind, Key: at.Addr().String(),
			What: fmt.Sprintf("endpoint %s answers this machine but no client: its answers to clients bypass this machine, or a firewall there refuses clients", at),
			Hint: fmt.Sprintf("check its route on %s: ip route get CLIENT; it must lead through this machine, or set --mode=onearm or fullnat", at.Addr()),
		}
	}
	return netdev.BoundedProblems(list, len(list), netdev.NeighbourKind, "endpoints whose answers to clients do not come back")
}

// coveredByIPsec is part of the text of IPsec problems.
const coveredByIPsec = ", since an IPsec policy covers them: "

// ipsecProblems lists the packets that the kernel's IPsec policies refuse, as problems of
// endpoints, or of the network if only some clients are affected.
func ipsecProblems(i *reconcile.IPsec) (list []netdev.Problem) {
	if i.Ignores() {
		return nil
	}
	all := i.Refused(examinedEndpoints)
	for n := range all {
		r := &all[n]
		kind := netdev.NeighbourKind
		if !r.RefusesAll && r.Clients.IsValid() {
			kind = reconcile.TaskKind
		}
		list = append(list, netdev.Problem{
			Kind: kind, Key: r.About(), What: r.Packets() + " are refused" + coveredByIPsec + r.Policy,
			Hint: "loxilb would send them in clear text: use an interface that encrypts (xfrm, WireGuard), or allow the packets by a policy of a higher priority",
		})
	}
	return netdev.BoundedProblems(list, len(list), netdev.NeighbourKind, "endpoints or clients whose packets IPsec policies refuse")
}

// owner omits the errors of VIPs that the surrounding network prevents from working. They are
// logged problems instead: the data path sees packets before the kernel does.
type owner struct{ announce.Owner }

func (o owner) Set(ctx context.Context, vips []netip.Addr) map[netip.Addr]error {
	return withoutProblems(o.Owner.Set(ctx, vips))
}

func (o owner) Add(ctx context.Context, vips ...netip.Addr) map[netip.Addr]error {
	return withoutProblems(o.Owner.Add(ctx, vips...))
}

func (o owner) Remove(ctx context.Context, vips ...netip.Addr) map[netip.Addr]error {
	return withoutProblems(o.Owner.Remove(ctx, vips...))
}

// withoutProblems removes errors that are problems of the network, which are logged elsewhere.
func withoutProblems(failed map[netip.Addr]error) map[netip.Addr]error {
	for a, err := range failed {
		if errors.As(err, new(netdev.Problem)) {
			delete(failed, a)
		}
	}
	return failed
}

// netObjects are the reconciliation loops of network objects (routes, VLANs, ...), by kind.
type netObjects map[string]interface {
	Run(context.Context)
	KernelChanged(keys []string)
}

func newNetObjects(s *desired.State, n *netobj.Network, made *objects.Ledger, o reconcile.Observers) netObjects {
	return netObjects{
		netobj.AddressKind:    reconcile.NewNetObjects(s, s.Addresses, n.Addresses, made, o),
		netobj.RouteKind:      reconcile.NewNetObjects(s, s.Routes, n.Routes, made, o),
		netobj.NeighborKind:   reconcile.NewNetObjects(s, s.Neighbors, n.Neighbors, made, o),
		netobj.FDBKind:        reconcile.NewNetObjects(s, s.FDBs, n.FDBs, made, o),
		netobj.VLANKind:       reconcile.NewNetObjects(s, s.VLANs, n.VLANs, made, o),
		netobj.VLANMemberKind: reconcile.NewNetObjects(s, s.Members, n.Members, made, o),
		netobj.VXLANKind:      reconcile.NewNetObjects(s, s.VXLANs, n.VXLANs, made, o),
		netobj.VXLANPeerKind:  reconcile.NewNetObjects(s, s.Peers, n.Peers, made, o),
	}
}

// changed makes the loop of a kind compare objects with the kernel: all of them if keys is nil.
func (n netObjects) changed(kind string, keys []string) {
	if loop := n[kind]; loop != nil {
		loop.KernelChanged(keys)
	}
}

// newRules makes the loop of the firewall rules. Without --clusterinterface, it has no egress
// gateways and removes the tunnels of an earlier start.
func (p *daemon) newRules(vips reconcile.LeasedOwner, o reconcile.Observers) (*reconcile.Rules, error) {
	below := p.config.ClusterInterface
	g, err := p.network.Gateways(below)
	if err != nil {
		return nil, err
	}
	if below != "" {
		r := reconcile.NewRules(p.state, p.datapath, p.network.Links, vips, g, o)
		r.Static = p.isOwnAddress
		return r, nil
	}
	defer g.Close()
	if _, err := g.Set(nil); err != nil { // leftover tunnels do not affect services
		p.log.Warn("tunnels of egress gateways could not be removed", "error", err)
	}
	return reconcile.NewRules(p.state, p.datapath, p.network.Links, vips, nil, o), nil
}

// networkChanged notifies the parts that depend on the network of a change.
func (p *daemon) networkChanged(b event.Body) {
	switch b := b.(type) {
	case event.Link:
		p.interfaces.MarkAll()
		p.policers.LinksChanged()
		p.mirrors.LinksChanged()
		p.gtp.LinksChanged()
		p.xdp.Mark()
		p.rules.LinksChanged()
	case event.Address:
		p.ipsec.Mark()
		p.leases.AddressChanged(b.Addr)
		p.rules.AddressesChanged()
	case event.Routes:
		if !b.Neighbours {
			p.services.RoutesChanged()
			p.rules.RoutesChanged()
		}
	}
}

// localAnswers updates the attachment of interfaces when endpoints move to or from this machine.
func (p *daemon) localAnswers(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.datapath.LocalEndpointsChanged():
			p.interfaces.MarkAll()
		}
	}
}
