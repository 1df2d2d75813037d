package differential

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"

	"loxilb/test/packet/lab"
)

// loxilbBalancer is loxilb's data path, attached to the network's interfaces.
type loxilbBalancer struct{ *lab.Lab }

func newLoxilb() (balancer, error) {
	l, err := lab.New(lab.Config{})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(router(), addVIPs(), l.Attach()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return loxilbBalancer{l}, nil
}

func (o loxilbBalancer) network() *lab.Network { return o.Network }

func (o loxilbBalancer) begin(q *sequence) error {
	if err := o.Reset(); err != nil {
		return err
	}
	// Reset sends RSTs to the ends of the last sequence's connections.
	for _, link := range []*lab.Link{o.Network.Client, o.Network.Server} {
		if _, err := o.Network.TakeSent(link); err != nil {
			return err
		}
	}
	for _, s := range q.services {
		if err := o.Apply(s); err != nil {
			return err
		}
	}
	return nil
}

func (o loxilbBalancer) record(out *outcome) error {
	reason, err := o.Counted()
	out.reasons = append(out.reasons, reason)
	return err
}

func (o loxilbBalancer) close() error { return o.Lab.Close() }

// vips returns the addresses of services. As the daemon does, tests add them to lo.
func vips(v6 bool) []netip.Addr {
	if v6 {
		return []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")}
	}
	return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
}

func addVIPs() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, a := range append(vips(false), vips(true)...) {
		addr, err := netlink.ParseAddr(netip.PrefixFrom(a, a.BitLen()).String())
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return err
		}
	}
	return nil
}
