package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"loxilb/internal/datapath/pins"
)

// Hook is the kind of tc ingress hook.
type Hook string

// The hooks. tcx (kernel 6.6) attaches and detaches in one system call, keeps other programs, and can be
// pinned; clsact is what there was before.
const (
	HookAuto   Hook = "auto" // tcx where there is, clsact otherwise
	HookTCX    Hook = "tcx"
	HookClsact Hook = "clsact"
)

// Interface is what Attach must know of an interface.
type Interface struct {
	Index  int
	Name   string
	Layer3 bool // no link-layer header: tun, wireguard
	Peer   bool // a veth whose other end is in another network namespace
}

// attachment is a program at an interface's hook. Close leaves it there if it is pinned.
type attachment interface {
	Detach() error
	Close() error
}

// side is one of the two hooks of an interface.
type side int

const (
	arriving side = iota // every packet that comes in
	leaving              // only while endpoints are on this machine
)

func (s side) tcx() ebpf.AttachType {
	if s == leaving {
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachTCXIngress
}

func (s side) clsact() uint32 {
	if s == leaving {
		return netlink.HANDLE_MIN_EGRESS
	}
	return netlink.HANDLE_MIN_INGRESS
}

// pins is the folder of the pinned links, below the data path's.
func (s side) pins() string {
	if s == leaving {
		return pins.Egress
	}
	return pins.Ingress
}

// attached is what is at an interface.
type attached struct {
	Interface
	in, out attachment // out: nil unless endpoints are on this machine
}

func (a *attached) each(f func(attachment) error) error {
	err := f(a.in)
	if a.out != nil {
		err = errors.Join(err, f(a.out))
	}
	return err
}

// Attach puts the data path at the interface's ingress, or replaces the program that an earlier process left
// there, without losing a packet. Attaching twice is harmless.
func (d *Datapath) Attach(i Interface) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.attached[i.Index]; ok {
		return nil
	}
	in, err := d.attach(i, arriving)
	if err != nil {
		return fmt.Errorf("attach %s: %w", i.Name, err)
	}
	d.attached[i.Index] = &attached{Interface: i, in: in}
	return d.followLocal()
}

func (d *Datapath) attach(i Interface, at side) (attachment, error) {
	prog, err := d.program(i, at)
	if err != nil {
		return nil, err
	}
	if d.cfg.Hook == HookTCX {
		a, err := d.attachLink(d.linkPins(at), i.Index, prog, func() (link.Link, error) {
			return link.AttachTCX(link.TCXOptions{Interface: i.Index, Program: prog, Attach: at.tcx()})
		})
		if err != nil {
			return nil, err
		}
		return a, detachClsact(i.Index, at)
	}
	a, err := attachClsact(i.Index, at, prog)
	if err != nil {
		return nil, err
	}
	return a, d.dropLinkPin(d.linkPins(at), i.Index)
}

// SetLink tells the packet path what kind of next hop an interface makes, attached or not.
func (d *Datapath) SetLink(i Interface) error {
	var flags uint32
	if i.Peer {
		flags |= linkPeer
	}
	if i.Layer3 {
		flags |= linkLayer3
	}
	if err := d.obj.Links.Put(uint32(i.Index), flags); err != nil {
		return fmt.Errorf("describe interface %s: %w", i.Name, err)
	}
	return nil
}

// ForgetLink takes SetLink back. An unknown index is no error.
func (d *Datapath) ForgetLink(index int) error {
	if err := d.obj.Links.Delete(uint32(index)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget interface %d: %w", index, err)
	}
	return nil
}

// Detach takes the data path away from an interface. One that is gone, or was never attached, is no error.
func (d *Datapath) Detach(index int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.attached[index]
	if !ok {
		return nil
	}
	delete(d.attached, index)
	err := a.each(func(a attachment) error { return errors.Join(a.Detach(), a.Close()) })
	if err != nil {
		return fmt.Errorf("detach interface %d: %w", index, err)
	}
	return nil
}

// DetachStrangers detaches interfaces for which keep is false, among them those that an earlier process
// attached: called once the choice of interfaces is known.
func (d *Datapath) DetachStrangers(keep func(index int) bool) error {
	if d.cfg.PinDir == "" {
		return nil
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return errors.Join(
		d.dropLinkPins(d.linkPins(arriving), keep),
		d.dropLinkPins(d.linkPins(leaving), func(index int) bool {
			a := d.attached[index]
			return keep(index) && a != nil && a.out != nil
		}),
	)
}

// dropLinkPins detaches the links in a folder of pins, but those of interfaces to keep.
func (d *Datapath) dropLinkPins(folder string, keep func(index int) bool) error {
	list, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list pinned links: %w", err)
	}
	var errs []error
	for _, e := range list {
		if index, err := strconv.Atoi(e.Name()); err == nil && !keep(index) {
			errs = append(errs, d.dropLinkPin(folder, index))
		}
	}
	return errors.Join(errs...)
}

// linked is an attachment by a link, pinned if the data path is.
type linked struct {
	link.Link
	pinned bool
}

// Detach takes the program off at once; unpinning alone would wait for the last file descriptor.
func (a linked) Detach() error {
	if a.pinned {
		if err := a.Unpin(); err != nil {
			return err
		}
	}
	return a.Link.Detach()
}

// attachLink gives the program to the interface's link in a folder of pins, or has attach make one.
func (d *Datapath) attachLink(folder string, index int, prog *ebpf.Program, attach func() (link.Link, error)) (attachment, error) {
	if d.cfg.PinDir == "" {
		l, err := attach()
		return linked{Link: l}, err
	}
	l, err := d.adoptLink(folder, index, prog)
	if err != nil {
		return nil, err
	}
	if l != nil {
		return linked{l, true}, nil
	}
	l, err = attach()
	if err != nil {
		return nil, err
	}
	if err := l.Pin(linkPin(folder, index)); err != nil {
		l.Close()
		return nil, err
	}
	return linked{l, true}, nil
}

func linkPin(folder string, index int) string { return filepath.Join(folder, strconv.Itoa(index)) }

// adoptLink replaces the program of a pinned link. Nil: there is none of this interface (an index may have
// been used before, by an interface that is gone).
func (d *Datapath) adoptLink(folder string, index int, prog *ebpf.Program) (link.Link, error) {
	l, err := link.LoadPinnedLink(linkPin(folder, index), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open pinned link: %w", err)
	}
	where, err := pins.Interface(l)
	if err == nil && where == uint32(index) {
		if err = l.Update(prog); err == nil {
			return l, nil
		}
	}
	d.log.Warn("a pinned link cannot be adopted and is made anew", "ifindex", index, "err", err)
	return nil, errors.Join(l.Unpin(), l.Close())
}

// dropLinkPin detaches the interface's pinned link, if there is one.
func (d *Datapath) dropLinkPin(folder string, index int) error {
	if d.cfg.PinDir == "" {
		return nil
	}
	l, err := link.LoadPinnedLink(linkPin(folder, index), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open pinned link: %w", err)
	}
	defer l.Close()
	return linked{l, true}.Detach()
}

// Hook is the kind of hook in use.
func (d *Datapath) Hook() Hook { return d.cfg.Hook }

// resolve chooses for HookAuto. Asking what is attached at lo is refused where the kernel has no tcx.
func (h Hook) resolve() Hook {
	const lo = 1
	if h != HookAuto && h != "" {
		return h
	}
	if _, err := link.QueryPrograms(link.QueryOptions{Target: lo, Attach: ebpf.AttachTCXIngress}); err != nil {
		return HookClsact
	}
	return HookTCX
}
