package attach

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/pins"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb"
)

// GTP are the programs that take packets of mobile users out of GTP-U tunnels, and put answers into
// them (bpf/gtp.bpf.c). They are loaded and attached while there are such flows; pinned links
// outlive the process. Methods are safe for concurrent use.
type GTP struct {
	shared *loader.Collection
	hooks  *Hooks

	mu      sync.Mutex
	objects *bpf.GtpObjects   // nil: not loaded
	at      map[int]Place     // by interface index
	past    map[string]uint64 // counts of released programs
	users   map[bpf.GtpGtpTunnel]bpf.GtpIpAddr
	classes map[bpf.GtpGtpClass]bpf.GtpGtpDownlink
}

// GTPFlow is what a user exchanges with one address by GTP-U.
type GTPFlow struct {
	User, Peer   netip.Addr
	Core, Access lb.TunnelEnd // of the user plane function, and of the base station; IPv4
	QFI          uint8        // the QoS flow of packets to the user
}

// NewGTP attaches nothing yet.
func NewGTP(c *loader.Collection, h *Hooks) *GTP {
	g := &GTP{shared: c, hooks: h, at: map[int]Place{}}
	h.follow = g.follow
	return g
}

// ErrNoTCX means that the kernel cannot attach programs in front of others.
var ErrNoTCX = errors.New("GTP-U sessions need Linux 6.6 or newer, and --attach other than clsact")

// TryGTP loads the programs, and releases them.
func (g *GTP) TryGTP() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.load(); err != nil {
		return err
	}
	return g.unload()
}

// SetGTP replaces all flows. Packets to users arrive at the interface down. Without flows the
// programs are detached.
func (g *GTP) SetGTP(flows []GTPFlow, down Interface) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(flows) == 0 {
		return g.unload()
	}
	if g.hooks.Hook() != HookTCX {
		return ErrNoTCX
	}
	if err := g.load(); err != nil {
		return err
	}
	if err := g.write(flows); err != nil {
		return err
	}
	if err := g.folder().Make(); err != nil {
		return err
	}
	if err := g.attach(down, g.objects.LoxilbGtpSend); err != nil {
		return err
	}
	wanted := map[int]bool{down.Index: true}
	for _, i := range g.hooks.Attached() {
		wanted[i.Index] = true
		if err := g.attachUplink(i); err != nil {
			return err
		}
	}
	return g.keep(func(index int) bool { return wanted[index] })
}

// GTPCounts returns the number of packets by outcome, since the daemon started: taken out of a
// tunnel, or put into one (sent); left in the tunnel, as the source is not its user (forged);
// dropped (unclassified, congestion, failed). Empty before the first session.
func (g *GTP) GTPCounts() (map[string]uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.counts()
}

func (g *GTP) counts() (map[string]uint64, error) {
	names := [...]string{"taken", "forged", "sent", "unclassified", "congestion", "failed"}
	out := make(map[string]uint64, len(names))
	maps.Copy(out, g.past)
	if g.objects == nil {
		return out, nil
	}
	for i, name := range names {
		var each []uint64
		if err := g.objects.GtpCounts.Lookup(uint32(i), &each); err != nil {
			return nil, fmt.Errorf("read counts of GTP-U: %w", err)
		}
		for _, n := range each {
			out[name] += n
		}
	}
	return out, nil
}

func (g *GTP) load() error {
	if g.objects != nil {
		return nil
	}
	spec, err := bpf.LoadGtp()
	if err != nil {
		return fmt.Errorf("read the object of GTP-U: %w", err)
	}
	var o bpf.GtpObjects
	if err := spec.LoadAndAssign(&o, &ebpf.CollectionOptions{Cache: bpf.KernelTypes()}); err != nil {
		return fmt.Errorf("load the programs of GTP-U: %w", err)
	}
	g.objects = &o
	g.users, g.classes = map[bpf.GtpGtpTunnel]bpf.GtpIpAddr{}, map[bpf.GtpGtpClass]bpf.GtpGtpDownlink{}
	return nil
}

// write makes the maps equal to the flows, the tunnels of answers first.
func (g *GTP) write(flows []GTPFlow) error {
	users, classes := map[bpf.GtpGtpTunnel]bpf.GtpIpAddr{}, map[bpf.GtpGtpClass]bpf.GtpGtpDownlink{}
	for _, f := range flows {
		user := bpf.GtpIpAddr(bpf.Addr(f.User))
		users[bpf.GtpGtpTunnel{Core: bpf.GtpIpAddr(bpf.Addr(f.Core.Addr)), Teid: f.Core.TEID}] = user
		classes[bpf.GtpGtpClass{User: user, Peer: bpf.GtpIpAddr(bpf.Addr(f.Peer))}] = bpf.GtpGtpDownlink{
			From: bpf.Addr(f.Core.Addr).Word[3], To: bpf.Addr(f.Access.Addr).Word[3], Teid: f.Access.TEID, Qfi: uint32(f.QFI),
		}
	}
	_, err := rows.Sync(g.objects.GtpClasses, g.classes, classes)
	if err == nil {
		_, err = rows.Sync(g.objects.GtpUsers, g.users, users)
	}
	if err != nil {
		return fmt.Errorf("write sessions: %w", err)
	}
	return nil
}

func (g *GTP) folder() LinkFolder {
	return LinkFolder{Path: g.shared.PinFolder(pins.GTP), Log: g.shared.Log, Exchange: &Exchange{}}
}

// attach attaches a program in front of others, or replaces that of an earlier process.
func (g *GTP) attach(i Interface, prog *ebpf.Program) error {
	if g.at[i.Index] != nil {
		return nil
	}
	a, err := g.folder().Attach(i.Index, prog, func(prog *ebpf.Program) (link.Link, error) {
		return link.AttachTCX(link.TCXOptions{Interface: i.Index, Program: prog, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	})
	if err != nil {
		return fmt.Errorf("attach the program of GTP-U to %s: %w", i.Name, err)
	}
	g.at[i.Index] = a
	return nil
}

func (g *GTP) attachUplink(i Interface) error {
	if i.Layer3 {
		return g.attach(i, g.objects.LoxilbGtpLayer3)
	}
	return g.attach(i, g.objects.LoxilbGtpEther)
}

// follow attaches the program to an interface that has just got the packet path.
func (g *GTP) follow(i Interface) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.objects == nil {
		return
	}
	delete(g.at, i.Index) // an earlier interface had the index
	if err := g.attachUplink(i); err != nil {
		g.shared.Log.Warn("packets in GTP-U tunnels are not seen there", "interface", i.Name, "error", err)
	}
}

// keep detaches the programs from all other interfaces.
func (g *GTP) keep(wanted func(index int) bool) error {
	errs := []error{g.folder().DropOthers(wanted)}
	for index, a := range g.at {
		if !wanted(index) {
			_ = Remove(a) // a missing interface has no programs
			delete(g.at, index)
		}
	}
	return errors.Join(errs...)
}

// unload detaches the programs, also those of an earlier process, and releases them.
func (g *GTP) unload() error {
	err := g.keep(func(int) bool { return false })
	if g.objects == nil {
		return err
	}
	past, failed := g.counts()
	if failed == nil {
		g.past = past
	}
	o := g.objects
	g.objects = nil
	return errors.Join(err, failed, o.Close())
}

// Close leaves pinned links attached, and detaches the rest.
func (g *GTP) Close() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for index, a := range g.at {
		errs = append(errs, Release(a, g.shared.Pinned()))
		delete(g.at, index)
	}
	if g.objects != nil {
		errs = append(errs, g.objects.Close())
		g.objects = nil
	}
	return errors.Join(errs...)
}
