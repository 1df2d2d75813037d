package lab

import (
	"errors"

	"github.com/vishvananda/netlink"

	kernel "loxilb/internal/kernel/netdev/netlink"
	"loxilb/internal/kernel/netdev/objects"
	"loxilb/internal/lb/policy"
)

// MirrorTo creates a mirror of any type, with its tunnel.
func (l *Lab) MirrorTo(m policy.Mirror) error {
	if m.Tunneled() {
		tap := objects.Tap{ERSPAN: m.Type == policy.ERSPAN, Remote: m.Remote, Source: m.Source, ID: m.TunnelID}
		if err := l.makeTunnel(tap); err != nil {
			return err
		}
		m.Port = tap.Name()
	}
	l.mirrors[m.Name] = m
	return l.attach()
}

func (l *Lab) makeTunnel(tap objects.Tap) error {
	ns, err := kernel.OpenNamespace("")
	if err != nil {
		return err
	}
	k, err := objects.Open(ns)
	if err != nil {
		return errors.Join(err, ns.Close())
	}
	defer k.Close()
	return errors.Join(k.MakeTap(tap), ns.Close())
}

// linkIndex returns the index of an interface, which may be a tunnel.
func (l *Lab) linkIndex(name string) (int, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	return link.Attrs().Index, nil
}
