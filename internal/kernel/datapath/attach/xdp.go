package attach

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/pins"
	"loxilb/internal/kernel/datapath/routing"
)

// XDPMode is the mode of attaching the XDP program to interfaces.
type XDPMode string

// The modes of XDP.
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

// pins returns the folder of the pinned links, below the data path's. A link does not reveal its
// mode.
func (m XDPMode) pins() string {
	if m == XDPGeneric {
		return pins.XDPGeneric
	}
	return pins.XDPNative
}

// multiBuffer reports whether to load the program for frames of several buffers: drivers refuse a
// large MTU to any other. In generic mode, Linux copies an sk_buff for such a program without the
// length of its MAC header, so tc looks for the IP header in the wrong place (seen on 6.18).
func (m XDPMode) multiBuffer() bool { return m == XDPNative }

func (m XDPMode) flags() link.XDPAttachFlags {
	if m == XDPGeneric {
		return link.XDPGenericMode
	}
	return link.XDPDriverMode
}

// XDPInterface describes an interface for the XDP program.
type XDPInterface struct {
	Index  int
	Name   string
	MAC    [6]byte // destination of frames to this machine
	Attach bool    // attach the program to it
	Target bool    // it sends the frames that the program redirects to it
}

const xdpProgramName = "loxilb_xdp"

// maxIndex is the highest index of an interface in the program's arrays.
const maxIndex = 16383

// XDP is the XDP program: it runs before the program at the tc hook, forwards packets of
// established connections itself, and challenges or drops the SYNs of a flood. All other packets,
// and packets of interfaces without XDP, are handled at the tc hook, so XDP is optional.
//
// It is loaded on first use. Its own maps are not pinned: they live as long as a link's program.
// Methods are safe for concurrent use.
type XDP struct {
	shared   *loader.Collection
	routing  *routing.Routing
	counts   XDPCounts
	mode     XDPMode
	exchange *Exchange

	mu       sync.RWMutex
	programs *ebpf.Collection    // nil: not in use
	refused  error               // why it could not be loaded
	attached map[int]attachedXDP // by interface index
	tracing  bool                // tracing is on
	traced   *ebpf.Program       // the tracing program; nil: not loaded

	described map[int]XDPInterface // as the program has them
}

type attachedXDP struct {
	Place
	name string
}

// XDPCounts makes an object's variables follow the number of services of rare kinds
// (tables.AddCounts).
type XDPCounts func(variables map[string]*ebpf.Variable) error

// NewXDP loads nothing yet. The program is attached in one mode, everywhere; empty: XDPNative.
func NewXDP(c *loader.Collection, r *routing.Routing, counts XDPCounts, mode XDPMode, e *Exchange) *XDP {
	if mode == "" {
		mode = XDPNative
	}
	return &XDP{shared: c, routing: r, counts: counts, mode: mode, exchange: e, attached: map[int]attachedXDP{}, described: map[int]XDPInterface{}}
}

// SetXDP describes an interface to the XDP program, and attaches or detaches it there. If attaching
// fails, the rest is done.
func (x *XDP) SetXDP(i XDPInterface) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.load(); err != nil {
		return err
	}
	if i.Index > maxIndex {
		if !i.Attach {
			return nil
		}
		return fmt.Errorf("attach XDP to %s: its index %d is above %d, the highest that the program looks up", i.Name, i.Index, maxIndex)
	}
	if err := x.describe(i); err != nil {
		return fmt.Errorf("describe interface %s to XDP: %w", i.Name, err)
	}
	return x.attach(i)
}

// ForgetXDP undoes SetXDP. A missing or unknown interface is no error.
func (x *XDP) ForgetXDP(index int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.programs == nil || index > maxIndex {
		return nil
	}
	err := errors.Join(x.describe(XDPInterface{Index: index}), x.detach(index))
	if err != nil {
		return fmt.Errorf("detach XDP from interface %d: %w", index, err)
	}
	return nil
}

// DetachXDPOrphans detaches the XDP program where an earlier process attached it and this one has
// not.
func (x *XDP) DetachXDPOrphans() error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var errs []error
	for _, mode := range []XDPMode{XDPNative, XDPGeneric} {
		errs = append(errs, x.folder(mode).DropOthers(func(index int) bool {
			return mode == x.mode && x.attached[index].Place != nil
		}))
	}
	return errors.Join(errs...)
}

// XDPInterfaces returns the names of the interfaces with the XDP program.
func (x *XDP) XDPInterfaces() (names []string, mode XDPMode) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, a := range x.attached {
		names = append(names, a.name)
	}
	return names, x.mode
}

// XDPForwarded counts the packets that the XDP program has forwarded since this process loaded it.
func (x *XDP) XDPForwarded() (sum uint64, err error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.programs == nil {
		return 0, nil
	}
	var each []uint64
	if err := x.programs.Maps["xdp_forwarded"].Lookup(uint32(0), &each); err != nil {
		return 0, fmt.Errorf("count the packets that XDP has forwarded: %w", err)
	}
	for _, n := range each {
		sum += n
	}
	return sum, nil
}

// Program returns the loaded program, for tests that run it on a packet.
func (x *XDP) Program() (*ebpf.Program, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.load(); err != nil {
		return nil, err
	}
	return x.programs.Programs[xdpProgramName], nil
}

func (x *XDP) folder(m XDPMode) LinkFolder {
	return LinkFolder{Path: x.shared.PinFolder(m.pins()), Log: x.shared.Log, Exchange: x.exchange}
}

// load loads the program on first use, or returns the kernel's earlier refusal.
func (x *XDP) load() error {
	if x.programs == nil && x.refused == nil {
		x.programs, x.refused = x.loadNow()
	}
	return x.refused
}

// loadNow shares the maps of the program at the tc hook.
func (x *XDP) loadNow() (*ebpf.Collection, error) {
	spec, err := bpf.LoadXdp()
	if err != nil {
		return nil, fmt.Errorf("read XDP object: %w", err)
	}
	if err := x.shared.Configure(spec); err != nil {
		return nil, err
	}
	maps := x.shared.Maps
	shared := map[string]*ebpf.Map{
		"connections": maps.Connections, "table_states": maps.TableStates, "ways": maps.Ways, "endpoint_traffics": maps.EndpointTraffics,
		"services": maps.Services, "vips": maps.Vips, "service_ranges": maps.ServiceRanges, "local_addresses": maps.LocalAddresses,
		"allowed_sources": maps.AllowedSources, "service_states": maps.ServiceStates, "half_opens": maps.HalfOpens, "secrets": maps.Secrets,
		"known_clients": maps.KnownClients, "challenges": maps.Challenges, "drops": maps.Drops, "drop_bytes": maps.DropBytes,
		"limits_by_service": maps.LimitsByService, "limited_clients": maps.LimitedClients, "attached_ports": maps.AttachedPorts,
		"packet_scratches": maps.PacketScratches, "watchers": maps.Watchers, "untold_counts": maps.UntoldCounts,
		loader.SharedSection: x.shared.Section(loader.SharedSection),
	}
	loader.ShareMaps(spec, shared, "xdp_addresses", "xdp_targets", "xdp_forwarded")
	if x.mode.multiBuffer() {
		spec.Programs[xdpProgramName].Flags |= unix.BPF_F_XDP_HAS_FRAGS
	}
	if err := x.folder(x.mode).Make(); err != nil {
		return nil, err
	}
	programs, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared, Cache: bpf.KernelTypes()})
	if err != nil {
		return nil, fmt.Errorf("load XDP: %w", err)
	}
	if err := x.routing.Follow(programs.Variables["hop_generation"], programs.Variables["neighbour_generation"]); err != nil {
		programs.Close()
		return nil, err
	}
	if err := x.counts(programs.Variables); err != nil {
		programs.Close()
		return nil, err
	}
	return programs, nil
}

func (x *XDP) describe(i XDPInterface) error {
	index := uint32(i.Index)
	if x.described[i.Index] = i; i == (XDPInterface{Index: i.Index}) {
		delete(x.described, i.Index)
	}
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

func (x *XDP) attach(i XDPInterface) error {
	if !i.Attach {
		if err := x.detach(i.Index); err != nil {
			return fmt.Errorf("detach XDP from %s: %w", i.Name, err)
		}
		return nil
	}
	if a, ok := x.attached[i.Index]; ok {
		x.attached[i.Index] = attachedXDP{a.Place, i.Name}
		return nil
	}
	if err := x.folder(x.mode.other()).Drop(i.Index); err != nil {
		return err
	}
	prog, err := x.program()
	if err != nil {
		return err
	}
	a, err := x.folder(x.mode).Attach(i.Index, prog, func(prog *ebpf.Program) (link.Link, error) {
		return link.AttachXDP(link.XDPOptions{Interface: i.Index, Program: prog, Flags: x.mode.flags()})
	})
	if err != nil {
		return fmt.Errorf("attach XDP to %s (%s): %w", i.Name, x.mode, explainXDP(err))
	}
	x.attached[i.Index] = attachedXDP{a, i.Name}
	return nil
}

// explainXDP adds the meaning of the kernel's error and a remedy.
func explainXDP(err error) error {
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return fmt.Errorf("another XDP program is attached and is left alone: %w", err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("its driver lacks XDP; generic mode works with any driver: %w", err)
	}
	return err
}

func (x *XDP) detach(index int) error {
	a, ok := x.attached[index]
	if !ok {
		return nil
	}
	if err := Remove(a); err != nil {
		return err
	}
	delete(x.attached, index)
	return nil
}

// Close leaves the program attached where it is pinned.
func (x *XDP) Close() error {
	if x == nil || x.programs == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for _, a := range x.attached {
		errs = append(errs, Release(a, x.shared.Pinned()))
	}
	if x.traced != nil {
		errs = append(errs, x.traced.Close())
	}
	x.programs.Close()
	return errors.Join(errs...)
}
