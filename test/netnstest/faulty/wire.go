// Package faulty joins hosts of a lab by faulty wires, which lose, repeat, delay, reorder and
// corrupt packets, or are cut. The n-th packet of a seed always has the same fate.
package faulty

import (
	"errors"
	"fmt"
	"time"

	"loxilb/test/netnstest"
)

//go:generate ../../../tools/bpf wire wire.bpf.c

// Faults are how often each thing happens to a packet, between 0 and 1.
type Faults struct {
	Lose, Repeat, Corrupt float64
	Delay                 float64
	By                    time.Duration // how late a delayed packet is
}

// Counts are how often it has happened. Packets are those over IP: others are not subject to
// faults.
type Counts struct {
	Packets, Lost, Repeated, Delayed, Corrupted uint64
	Cut                                         uint64 // of any kind, while the wire was cut
}

// Wire joins two hosts.
type Wire struct {
	There, Back *Direction // from the first to the second, and from the second to the first
}

// The ends of a wire, in the namespace that stands for it.
const (
	nearEnd = "near"
	farEnd  = "far"
)

// Join joins two hosts as Lab.Link does, by a wire that is perfect at first. Both ends send
// complete frames, like cards without offloads: the wire counts, loses and corrupts real frames.
func Join(l *netnstest.Lab, a, b netnstest.End, mtu int, seed uint64) (*Wire, error) {
	w, err := join(l, a, b, mtu, seed)
	if err != nil {
		return nil, fmt.Errorf("wire from %s to %s: %w", a.Host.Name, b.Host.Name, err)
	}
	return w, nil
}

func join(l *netnstest.Lab, a, b netnstest.End, mtu int, seed uint64) (*Wire, error) {
	h, err := l.Host(a.Host.Name + "=" + b.Host.Name)
	if err != nil {
		return nil, err
	}
	if err := h.Sysctl("net/ipv6/conf/default/disable_ipv6", "1"); err != nil { // only the ends send packets
		return nil, err
	}
	err = errors.Join(
		l.Link(a, netnstest.End{Host: h, Interface: nearEnd}, mtu),
		l.Link(b, netnstest.End{Host: h, Interface: farEnd}, mtu),
		wholeFrames(a), wholeFrames(b),
	)
	if err != nil {
		return nil, err
	}
	w := &Wire{}
	if w.There, err = newDirection(h, nearEnd, farEnd, mtu, seed); err != nil {
		return nil, err
	}
	l.Cleanup(w.There.close)
	if w.Back, err = newDirection(h, farEnd, nearEnd, mtu, ^seed); err != nil {
		return nil, err
	}
	l.Cleanup(w.Back.close)
	return w, nil
}

// wholeFrames has a host send no segments for the card to cut up, and no sums for it to complete.
func wholeFrames(e netnstest.End) error {
	_, err := e.Host.Run("ethtool", "-K", e.Interface, "tx", "off", "gso", "off", "tso", "off")
	return err
}

// Set has faults happen in both directions from now on.
func (w *Wire) Set(f Faults) error { return errors.Join(w.There.Set(f), w.Back.Set(f)) }

// Cut cuts the wire, or joins it again. Both ends stay up, unaware of it.
func (w *Wire) Cut(cut bool) error { return errors.Join(w.There.Cut(cut), w.Back.Cut(cut)) }

// index returns the number of an interface of the wire.
func index(h *netnstest.Host, name string) (uint32, error) {
	link, err := h.Netlink().LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("find %s: %w", name, err)
	}
	return uint32(link.Attrs().Index), nil
}

// raise sets an interface's MTU, and sets it up.
func raise(h *netnstest.Host, name string, mtu int) error {
	link, err := h.Netlink().LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if mtu != 0 {
		if err := h.Netlink().LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("set the MTU of %s: %w", name, err)
		}
	}
	return h.Netlink().LinkSetUp(link)
}
