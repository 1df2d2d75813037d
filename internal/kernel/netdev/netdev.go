// Package netdev is the load balancer's interface to the network of one namespace. It reads links,
// addresses, routes and neighbours, and follows their changes. It changes little: it adds VIPs that
// the machine does not have, keeps the next hops of endpoints resolved, and enables forwarding on
// lo.
//
// VIPs, next hops, sysctls, IPsec policies and problems have a file each. The folders below are
// netlink (sockets and messages), mirror (a copy of the kernel's tables) and objects (users'
// objects). Everything that they add to the kernel carries netlink.OwnProtocol, so a restarted
// daemon recognizes it.
package netdev

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"

	"loxilb/internal/kernel/netdev/mirror"
	"loxilb/internal/kernel/netdev/netlink"
	"loxilb/internal/kernel/netdev/objects"
)

// Net is the network of one namespace.
type Net struct {
	log        *slog.Logger
	ns         *netlink.Namespace
	mirror     *mirror.Mirror
	settings   Settings
	vips       *VIPOwner
	neighbours *NeighbourKeeper
	sources    *Sources
	features   *xdpFeatures // nil: unknown to the kernel
	doctor     *Doctor
	objects    *objects.Kernel

	forwards sync.Mutex // held while forwarding is set
	retired  bool       // guarded by forwards

	mu           sync.Mutex
	forwarding   []Problem
	moreProblems func() []Problem // nil: none
}

// Open opens the network namespace of the calling thread: it subscribes to changes, then reads all
// tables once, so no change is missed until Run.
func Open(log *slog.Logger) (*Net, error) { return OpenAt("", log) }

// OpenAt is Open for the namespace at a path, such as /run/netns/NAME.
func OpenAt(path string, log *slog.Logger) (*Net, error) {
	ns, err := netlink.OpenNamespace(path)
	if err != nil {
		return nil, err
	}
	n := &Net{log: log, ns: ns, settings: newSettings(ns)}
	n.doctor = newDoctor(n.check, log)
	if err := n.open(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Net) open() (err error) {
	if n.features, err = openXDPFeatures(n.ns); err != nil {
		return err
	}
	if n.mirror, err = mirror.Open(n.ns, n.log); err != nil {
		return err
	}
	if n.neighbours, err = newNeighbourKeeper(n.ns, n.mirror, n.doctor.RequestCheck, n.log); err != nil {
		return err
	}
	if n.sources, err = openSources(n.ns, n.mirror); err != nil {
		return err
	}
	if n.objects, err = objects.Open(n.ns); err != nil {
		return err
	}
	n.vips, err = newVIPOwner(n.ns, n.mirror, n.settings, n.doctor.RequestCheck)
	return err
}

// Close closes the namespace; everything in the kernel stays.
func (n *Net) Close() error {
	n.objects.Close()
	return errors.Join(n.vips.Close(), n.sources.close(), n.neighbours.Close(), n.mirror.Close(), n.features.close(), n.ns.Close())
}

// Prepare sets lo up (the API listens there, VIPs are there, and in a new namespace it is down) and
// enables forwarding from it, so the data path may be attached. Run maintains both.
func (n *Net) Prepare() error {
	err := n.vips.Prepare()
	n.forward()
	return err
}

// Remove removes everything that this package added to the kernel, in this process or an earlier
// one: VIPs, managed neighbours, tunnels to egress gateways, and the forwarding of lo, which gets
// the setting of all interfaces again. It must not be called while Run runs.
func (n *Net) Remove(ctx context.Context) error {
	var errs []error
	for _, err := range n.vips.Set(ctx, nil) {
		errs = append(errs, err)
	}
	_, _, _, unmade := n.objects.MakeGTP(nil)
	return errors.Join(append(errs, unmade, n.removeGateways(), n.neighbours.Clear(ctx), n.settings.StopForwarding())...)
}

func (n *Net) removeGateways() error {
	g, err := n.Gateways("")
	if err != nil {
		return err
	}
	defer g.Close()
	_, err = g.Set(nil)
	return err
}

// VIPs returns the owner of the VIPs that loxilb adds to the kernel.
func (n *Net) VIPs() *VIPOwner { return n.vips }

// Neighbours returns the keeper of the endpoints' next hops.
func (n *Net) Neighbours() *NeighbourKeeper { return n.neighbours }

// Sources returns the lookup of this machine's routes and source addresses.
func (n *Net) Sources() *Sources { return n.sources }

// Objects returns the access to users' network objects, such as routes and VLANs.
func (n *Net) Objects() *objects.Kernel { return n.objects }

// Gateways opens the egress gateways of a cluster. underlay is the interface that leads to other
// nodes.
func (n *Net) Gateways(underlay string) (*Gateways, error) { return openGateways(n.ns, underlay) }

// Links returns all links by index.
func (n *Net) Links() []Link { return n.mirror.Links() }

// OnLink returns the links whose connected network contains the address: their neighbours resolve
// it by ARP or neighbour discovery.
func (n *Net) OnLink(a netip.Addr) []Link { return n.mirror.OnLink(a) }

// AnsweringLinks returns the indexes of the links that answer ARP for a VIP: links whose connected
// network contains it, and links below them. It returns nil if all links answer, and if the machine
// had the address before, which leaves the answer to the kernel.
func (n *Net) AnsweringLinks(vip netip.Addr) []int {
	if !vip.Is4() || n.HasOwn(vip) {
		return nil
	}
	return n.mirror.AnsweringLinks(vip)
}

// Addresses lists the addresses of this machine that others can reach, except for VIPs that VIPs
// owns.
func (n *Net) Addresses() []netip.Addr { return n.mirror.Addresses() }

// HasOwn reports whether this machine has the address, unless VIPs has added it.
func (n *Net) HasOwn(a netip.Addr) bool { return n.mirror.Own(a) }

// RoutesByDestination reports whether all packets to an address take the same route, from any
// source. It is false until that is known.
func (n *Net) RoutesByDestination() bool { return n.mirror.ByDestination() }

// DefaultRoutes returns the next hops of the default routes of the main table, in order. known is
// false while they are being read; event.Routes reports the end of that.
func (n *Net) DefaultRoutes() (list []Hop, known bool) { return n.mirror.DefaultRoutes() }

// IPsecPolicies queries the kernel for the policies of IPsec (xfrm) that may match balanced
// packets, in the kernel's order.
func (n *Net) IPsecPolicies() ([]IPsecPolicy, error) { return readIPsec(n.ns) }

// FollowIPsec calls changed whenever these policies may have changed, until ctx ends, and once at
// its start.
func (n *Net) FollowIPsec(ctx context.Context, changed func()) { followIPsec(ctx, n.ns, changed) }

// Do calls f on a thread in the namespace: sockets that f opens are the namespace's.
func (n *Net) Do(f func() error) error { return n.ns.Do(f) }

// Diagnose returns the current known problems.
func (n *Net) Diagnose() []Problem {
	n.mu.Lock()
	out := append([]Problem{}, n.forwarding...)
	n.mu.Unlock()
	out = append(append(out, n.vips.Problems()...), n.neighbours.Problems()...)
	if n.moreProblems != nil {
		out = append(out, n.moreProblems()...)
	}
	return out
}

// AddProblemSource adds the problems that f returns to Problems. It must not be called while Run
// runs. requestCheck requests a check.
func (n *Net) AddProblemSource(f func() []Problem) (requestCheck func()) {
	n.moreProblems = f
	return n.doctor.RequestCheck
}

// Problems returns the problems at the last check, and since when.
func (n *Net) Problems() []KnownProblem { return n.doctor.Problems() }

func (n *Net) check(ctx context.Context, periodic bool) []Problem {
	if periodic {
		n.vips.Retry(ctx)
	}
	return n.Diagnose()
}

// Retire removes the same as Remove, but while Run runs. Afterwards nothing is added: VIPs fail
// with the error why.
func (n *Net) Retire(ctx context.Context, why error) error {
	n.forwards.Lock()
	n.retired = true
	n.forwards.Unlock()
	n.neighbours.Retire()
	return n.vips.Retire(ctx, why)
}

// forward enables forwarding of lo.
func (n *Net) forward() {
	n.forwards.Lock()
	defer n.forwards.Unlock()
	if n.retired {
		return
	}
	problems := n.settings.Forward(n.mirror.AdvertisedLinks)
	n.mu.Lock()
	n.forwarding = problems
	n.mu.Unlock()
	n.doctor.RequestCheck()
}
