package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/pins"
)

// The XDP program stands in front of the one at the tc hook and forwards packets of established connections by itself.
// What it does not take, or where it is not attached, goes the way through tc: that it is missing loses no packet.

// XDPMode is how the XDP program is attached to interfaces: one for all.
type XDPMode string

// The modes.
const (
	XDPNative  XDPMode = "native"  // the driver runs it, before there is an sk_buff
	XDPGeneric XDPMode = "generic" // the kernel runs it, on sk_buffs: for drivers that cannot
)

func (m XDPMode) other() XDPMode {
	if m == XDPGeneric {
		return XDPNative
	}
	return XDPGeneric
}

// pins is the folder of the pinned links, below the data path's. A link does not tell its mode.
func (m XDPMode) pins() string {
	if m == XDPGeneric {
		return pins.XDPGeneric
	}
	return pins.XDPNative
}

// multiBuffer: drivers refuse a large MTU to a program that does not take frames of several buffers. For one that does,
// generic mode has Linux copy an sk_buff without the length of its MAC header, and tc, to which it is passed, looks for the IP
// header in the wrong place (seen on 6.18).
func (m XDPMode) multiBuffer() bool { return m == XDPNative }

func (m XDPMode) flags() link.XDPAttachFlags {
	if m == XDPGeneric {
		return link.XDPGenericMode
	}
	return link.XDPDriverMode
}

// XDPInterface is what the XDP program must know of an interface.
type XDPInterface struct {
	Index  int
	Name   string
	MAC    [6]byte // frames to it are for this machine
	Attach bool    // the program to it
	Target bool    // it sends the frames that the program redirects to it
}

const xdpProgram = "loxilb_xdp"

// maxXDPIndex is the highest index of an interface in the program's arrays.
const maxXDPIndex = 16383

// xdp is the loaded XDP program. Its maps are not pinned: those that a link's program uses stay with it.
type xdp struct {
	programs *ebpf.Collection
	attached map[int]xdpAttached // by interface index
}

type xdpAttached struct {
	attachment
	name string
}

// SetXDP has the XDP program know an interface, and attaches or detaches it there. An error to attach leaves the rest done.
func (d *Datapath) SetXDP(i XDPInterface) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.loadXDP(); err != nil {
		return err
	}
	if i.Index > maxXDPIndex {
		if !i.Attach {
			return nil
		}
		return fmt.Errorf("attach XDP to %s: its index %d is above %d, the highest that the program looks up", i.Name, i.Index, maxXDPIndex)
	}
	if err := d.xdp.describe(i); err != nil {
		return fmt.Errorf("describe interface %s to XDP: %w", i.Name, err)
	}
	return d.attachXDP(i)
}

// ForgetXDP takes SetXDP back. An interface that is gone, or was never described, is no error.
func (d *Datapath) ForgetXDP(index int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.xdp == nil || index > maxXDPIndex {
		return nil
	}
	err := errors.Join(d.xdp.describe(XDPInterface{Index: index}), d.xdp.detach(index))
	if err != nil {
		return fmt.Errorf("take XDP from interface %d: %w", index, err)
	}
	return nil
}

// DetachXDPStrangers detaches the XDP program where this process has not attached it: what an earlier one left.
func (d *Datapath) DetachXDPStrangers() error {
	if d.cfg.PinDir == "" {
		return nil
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	var errs []error
	for _, mode := range []XDPMode{XDPNative, XDPGeneric} {
		errs = append(errs, d.dropLinkPins(d.xdpPins(mode), func(index int) bool {
			return mode == d.cfg.XDP && d.xdp != nil && d.xdp.attached[index].attachment != nil
		}))
	}
	return errors.Join(errs...)
}

// XDPInterfaces are the names of the interfaces that the XDP program is attached to.
func (d *Datapath) XDPInterfaces() (names []string, mode XDPMode) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.xdp != nil {
		for _, a := range d.xdp.attached {
			names = append(names, a.name)
		}
	}
	return names, d.cfg.XDP
}

// XDPForwarded counts the packets that the XDP program has forwarded since this process loaded it.
func (d *Datapath) XDPForwarded() (sum uint64, err error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.xdp == nil {
		return 0, nil
	}
	var each []uint64
	if err := d.xdp.programs.Maps["xdp_forwarded"].Lookup(uint32(0), &each); err != nil {
		return 0, fmt.Errorf("read what XDP has forwarded: %w", err)
	}
	for _, n := range each {
		sum += n
	}
	return sum, nil
}

func (d *Datapath) xdpPins(m XDPMode) string { return filepath.Join(d.cfg.PinDir, m.pins()) }

// loadXDP loads the program when it is first wanted, or says again why the kernel refused it.
func (d *Datapath) loadXDP() error {
	if d.xdp != nil || d.xdpRefused != nil {
		return d.xdpRefused
	}
	d.hopMu.Lock() // who bumps next hops reads d.xdp
	defer d.hopMu.Unlock()
	d.xdp, d.xdpRefused = d.newXDP()
	return d.xdpRefused
}

// newXDP shares the maps of the program at the tc hook.
func (d *Datapath) newXDP() (*xdp, error) {
	spec, err := bpf.LoadXdp()
	if err != nil {
		return nil, fmt.Errorf("read XDP object: %w", err)
	}
	if err := d.configure(spec); err != nil {
		return nil, err
	}
	shared := map[string]*ebpf.Map{"connections": d.obj.Connections, "endpoint_traffics": d.obj.EndpointTraffics}
	shareMaps(spec, shared, "xdp_addresses", "xdp_targets", "xdp_forwarded")
	if d.cfg.XDP.multiBuffer() {
		spec.Programs[xdpProgram].Flags |= unix.BPF_F_XDP_HAS_FRAGS
	}
	if d.cfg.PinDir != "" {
		if err := os.MkdirAll(d.xdpPins(d.cfg.XDP), 0o700); err != nil {
			return nil, fmt.Errorf("make pin folder: %w", err)
		}
	}
	programs, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, fmt.Errorf("load XDP: %w", err)
	}
	x := &xdp{programs: programs, attached: map[int]xdpAttached{}}
	if err := x.bump(d.hops); err != nil {
		programs.Close()
		return nil, err
	}
	return x, nil
}

func (x *xdp) bump(generation uint32) error {
	if x == nil {
		return nil
	}
	if err := x.programs.Variables["hop_generation"].Set(generation); err != nil {
		return fmt.Errorf("bump next hop generation of XDP: %w", err)
	}
	return nil
}

func (x *xdp) describe(i XDPInterface) error {
	index := uint32(i.Index)
	err := x.programs.Maps["xdp_addresses"].Put(index, bpf.XdpLinkAddress{Mac: i.MAC})
	targets := x.programs.Maps["xdp_targets"]
	if i.Target {
		return errors.Join(err, targets.Put(index, index))
	}
	if gone := targets.Delete(index); gone != nil && !errors.Is(gone, ebpf.ErrKeyNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

func (d *Datapath) attachXDP(i XDPInterface) error {
	mode := d.cfg.XDP
	if !i.Attach {
		if err := d.xdp.detach(i.Index); err != nil {
			return fmt.Errorf("detach XDP from %s: %w", i.Name, err)
		}
		return nil
	}
	if a, ok := d.xdp.attached[i.Index]; ok {
		d.xdp.attached[i.Index] = xdpAttached{a.attachment, i.Name}
		return nil
	}
	if err := d.dropLinkPin(d.xdpPins(mode.other()), i.Index); err != nil {
		return err
	}
	prog := d.xdp.programs.Programs[xdpProgram]
	a, err := d.attachLink(d.xdpPins(mode), i.Index, prog, func() (link.Link, error) {
		return link.AttachXDP(link.XDPOptions{Interface: i.Index, Program: prog, Flags: mode.flags()})
	})
	if err != nil {
		return fmt.Errorf("attach XDP to %s (%s): %w", i.Name, mode, explainXDP(err))
	}
	d.xdp.attached[i.Index] = xdpAttached{a, i.Name}
	return nil
}

// explainXDP says what the kernel's answer means and what helps.
func explainXDP(err error) error {
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return fmt.Errorf("another XDP program is there and is left alone: %w", err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("its driver has no XDP, generic works with any: %w", err)
	}
	return err
}

func (x *xdp) detach(index int) error {
	a, ok := x.attached[index]
	if !ok {
		return nil
	}
	delete(x.attached, index)
	return errors.Join(a.Detach(), a.Close())
}

// close leaves the program attached where it is pinned.
func (x *xdp) close(pinned bool) error {
	if x == nil {
		return nil
	}
	var errs []error
	for index, a := range x.attached {
		if pinned {
			errs = append(errs, a.Close())
		} else {
			errs = append(errs, x.detach(index))
		}
	}
	x.programs.Close()
	return errors.Join(errs...)
}
