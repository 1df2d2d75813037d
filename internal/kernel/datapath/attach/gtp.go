package attach

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/pins"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb"
)

// GTP has the programs that decapsulate GTP-U packets of mobile users, encapsulate answers, and
// prepare packets in tunnels for services of algorithm n3 (bpf/gtp.bpf.c). They are loaded and
// attached while there are such flows or services; pinned links outlive the process. Methods are
// safe for concurrent use.
type GTP struct {
	shared *loader.Collection
	hooks  *Hooks

	mu      sync.Mutex
	objects *bpf.GtpObjects   // nil: not loaded
	at      map[int]Place     // by interface index
	past    map[string]uint64 // counts of released programs
	flows   []GTPFlow
	links   GTPLinks
	vips    []bpf.GtpIpAddr // of services
	users   map[bpf.GtpGtpTunnel]bpf.GtpIpAddr
	classes map[bpf.GtpGtpClass]bpf.GtpGtpDownlink
	written map[bpf.GtpIpAddr]uint32 // rows of services
}

// GTPLinks are the pair of interfaces of packets to users: they are sent to the first one, and
// arrive at the second one.
type GTPLinks struct {
	Near int // its index
	Far  Interface
}

// GTPFlow is the traffic of a user with one address, over GTP-U.
type GTPFlow struct {
	User, Peer   netip.Addr
	Core, Access lb.TunnelEnd // of the user plane function, and of the base station; of one IP version
	QFI          uint8        // the QoS flow of packets to the user
}

// NewGTP attaches nothing yet.
func NewGTP(c *loader.Collection, h *Hooks) *GTP {
	g := &GTP{shared: c, hooks: h, at: map[int]Place{}}
	h.follow, h.settle = g.follow, g.settle
	return g
}

// ErrNoTCX means that the kernel cannot attach programs in front of others.
var ErrNoTCX = errors.New("GTP-U sessions, and services with --select=n3, need Linux 6.6 or newer, and --attach other than clsact")

// TryGTP loads the programs, and releases them.
func (g *GTP) TryGTP() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.load(); err != nil {
		return err
	}
	return g.unload()
}

// PrepareGTP loads the programs, or reports why this machine cannot have flows.
func (g *GTP) PrepareGTP() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.prepare()
}

func (g *GTP) prepare() error {
	if g.hooks.Hook() != HookTCX {
		return ErrNoTCX
	}
	return g.load()
}

// SetGTP replaces all flows. Without flows and services the programs are detached.
func (g *GTP) SetGTP(flows []GTPFlow, links GTPLinks) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flows, g.links = flows, links
	return g.sync()
}

// SetGTPServices replaces the VIPs of services whose packets are balanced by tunnel.
func (g *GTP) SetGTPServices(vips []bpf.TcIpAddr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.vips
	g.expect(vips)
	if len(before) == 0 && len(g.vips) == 0 {
		return nil
	}
	return g.sync()
}

// HasGTPServices reports whether a service is balanced by tunnel.
func (g *GTP) HasGTPServices() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.vips) > 0
}

// ExpectGTPServices keeps the programs of an earlier process until SetGTPServices is called.
func (g *GTP) ExpectGTPServices(vips []bpf.TcIpAddr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expect(vips)
}

func (g *GTP) expect(vips []bpf.TcIpAddr) {
	g.vips = make([]bpf.GtpIpAddr, len(vips))
	for i, a := range vips {
		g.vips[i] = bpf.GtpIpAddr(a)
	}
}

// sync updates the maps and attachments to the flows and services.
func (g *GTP) sync() error {
	if len(g.flows) == 0 && len(g.vips) == 0 {
		return g.unload()
	}
	if err := g.prepare(); err != nil {
		return err
	}
	if err := g.write(); err != nil {
		return err
	}
	if err := g.folder().Make(); err != nil {
		return err
	}
	wanted := map[int]bool{}
	if len(g.flows) > 0 {
		if err := g.objects.GtpNear.Set(uint32(g.links.Near)); err != nil {
			return fmt.Errorf("write the interface of GTP-U: %w", err)
		}
		wanted[g.links.Far.Index] = true
		if err := g.attach(g.links.Far, g.objects.LoxilbGtpSend); err != nil {
			return err
		}
	}
	for _, i := range g.hooks.Attached() {
		wanted[i.Index] = true
		if err := g.attachUplink(i); err != nil {
			return err
		}
	}
	if !g.hooks.Settled() { // programs of an earlier process serve where none is attached yet
		return nil
	}
	return g.keep(func(index int) bool { return wanted[index] })
}

// settle detaches the programs of an earlier process from interfaces that are no longer selected.
func (g *GTP) settle() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.objects == nil {
		return nil
	}
	return g.sync()
}

func (g *GTP) load() error {
	if g.objects != nil {
		return nil
	}
	spec, err := bpf.LoadGtp()
	if err != nil {
		return fmt.Errorf("read the object of GTP-U: %w", err)
	}
	opts := ebpf.CollectionOptions{Cache: bpf.KernelTypes()}
	if err := g.pinCounts(spec, &opts); err != nil {
		return err
	}
	var o bpf.GtpObjects
	err = spec.LoadAndAssign(&o, &opts)
	if errors.Is(err, ebpf.ErrMapIncompatible) { // of another version: counts begin at 0
		if err = os.Remove(filepath.Join(g.shared.MapFolder(), gtpCounts)); err == nil {
			err = spec.LoadAndAssign(&o, &opts)
		}
	}
	if err != nil {
		return fmt.Errorf("load the programs of GTP-U: %w", err)
	}
	g.objects = &o
	g.users, g.classes = map[bpf.GtpGtpTunnel]bpf.GtpIpAddr{}, map[bpf.GtpGtpClass]bpf.GtpGtpDownlink{}
	g.written = map[bpf.GtpIpAddr]uint32{}
	return nil
}

// write updates the maps to the flows and services; the tunnels of answers come first.
func (g *GTP) write() error {
	users, classes := map[bpf.GtpGtpTunnel]bpf.GtpIpAddr{}, map[bpf.GtpGtpClass]bpf.GtpGtpDownlink{}
	for _, f := range g.flows {
		user := bpf.GtpIpAddr(bpf.Addr(f.User))
		users[bpf.GtpGtpTunnel{Core: bpf.GtpIpAddr(bpf.Addr(f.Core.Addr)), Teid: f.Core.TEID}] = user
		classes[bpf.GtpGtpClass{User: user, Peer: bpf.GtpIpAddr(bpf.Addr(f.Peer))}] = bpf.GtpGtpDownlink{
			From: bpf.GtpIpAddr(bpf.Addr(f.Core.Addr)), To: bpf.GtpIpAddr(bpf.Addr(f.Access.Addr)), Teid: f.Access.TEID, Qfi: uint32(f.QFI),
		}
	}
	vips := make(map[bpf.GtpIpAddr]uint32, len(g.vips))
	for _, vip := range g.vips {
		vips[vip] = 0
	}
	_, err := rows.Sync(g.objects.GtpClasses, g.classes, classes)
	if err == nil {
		_, err = rows.Sync(g.objects.GtpUsers, g.users, users)
	}
	if err != nil {
		return fmt.Errorf("write sessions: %w", err)
	}
	if _, err := rows.Sync(g.objects.GtpVips, g.written, vips); err != nil {
		return fmt.Errorf("write addresses of services that are balanced by tunnel: %w", err)
	}
	return nil
}

func (g *GTP) folder() LinkFolder {
	return LinkFolder{Path: g.shared.PinFolder(pins.GTP), Log: g.shared.Log, Exchange: &Exchange{}}
}

// attach attaches a program in front of others, or replaces the program of an earlier process.
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

// follow attaches the program to an interface after the packet path was attached there.
func (g *GTP) follow(i Interface) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.objects == nil {
		return
	}
	delete(g.at, i.Index) // an earlier interface had the index
	if err := g.attachUplink(i); err != nil {
		g.shared.Log.Warn("packets in GTP-U tunnels are not handled at an interface", "interface", i.Name, "error", err)
	}
}

// keep detaches the programs from all interfaces that are not wanted.
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

// unload detaches the programs, including an earlier process's, and releases them.
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
