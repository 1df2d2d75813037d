// Package faulty connects hosts of a lab by faulty wires: they lose, duplicate, delay, reorder and
// corrupt packets, or drop all of them. The seed and a packet's number determine its faults.
package faulty

import (
	"errors"
	"fmt"
	"time"

	"loxilb/test/netnstest"
)

//go:generate ../../../tools/bpf wire wire.bpf.c

// Faults are the probabilities of faults of a packet, between 0 and 1.
type Faults struct {
	Loss, Duplicate, Corrupt float64
	Delay                    float64
	DelayTime                time.Duration // how late a delayed packet is
}

// Counts are numbers of packets. Packets counts IP packets: others have no faults.
type Counts struct {
	Packets, Lost, Duplicated, Delayed, Corrupted uint64
	Cut                                           uint64 // all packets that were dropped because the wire was cut
}

// Wire joins two hosts.
type Wire struct {
	Forward, Reverse *Direction // from the first host to the second, and back
}

// Interfaces at the ends of a wire, in the namespace between the hosts.
const (
	nearEnd = "near"
	farEnd  = "far"
)

// Join connects two hosts as Lab.Link does, by a wire without faults. Both hosts send complete
// frames, like cards without offloads, so the wire counts, loses and corrupts real frames.
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
		disableOffloads(a), disableOffloads(b),
	)
	if err != nil {
		return nil, err
	}
	w := &Wire{}
	if w.Forward, err = newDirection(h, nearEnd, farEnd, mtu, seed); err != nil {
		return nil, err
	}
	l.Cleanup(w.Forward.close)
	if w.Reverse, err = newDirection(h, farEnd, nearEnd, mtu, ^seed); err != nil {
		return nil, err
	}
	l.Cleanup(w.Reverse.close)
	return w, nil
}

// disableOffloads makes a host send complete frames: it leaves no segmentation and no checksums to
// the card.
func disableOffloads(e netnstest.End) error {
	_, err := e.Host.Run("ethtool", "-K", e.Interface, "tx", "off", "gso", "off", "tso", "off")
	return err
}

// Set sets the faults of both directions.
func (w *Wire) Set(f Faults) error { return errors.Join(w.Forward.Set(f), w.Reverse.Set(f)) }

// SetCut makes both directions drop all packets, or forward them again. The links stay up.
func (w *Wire) SetCut(cut bool) error {
	return errors.Join(w.Forward.SetCut(cut), w.Reverse.SetCut(cut))
}

// ifindex returns the index of an interface.
func ifindex(h *netnstest.Host, name string) (uint32, error) {
	link, err := h.Netlink().LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("find %s: %w", name, err)
	}
	return uint32(link.Attrs().Index), nil
}

// setUp sets an interface's MTU, and sets it up.
func setUp(h *netnstest.Host, name string, mtu int) error {
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
