package attach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb"
)

const (
	// maxListAge is how long the list of attached interfaces is reused.
	maxListAge = 100 * time.Millisecond
	// idleTimeout is the time without probes after which the programs are detached.
	idleTimeout = time.Minute
)

// Probes manages the programs that redirect probes of endpoints in mode dsr to the VIP
// (bpf/probe.bpf.c). They are attached while there are probes of this kind, and not pinned. Methods
// are safe for concurrent use.
type Probes struct {
	shared *loader.Collection
	hooks  *Hooks

	mu        sync.Mutex
	objects   *bpf.ProbeObjects  // nil: not loaded yet
	at        map[int]Attachment // attachments by interface index
	followed  time.Time          // when the interfaces of hooks were last read
	busyUntil time.Time          // when the last redirected socket stops waiting for its answer
}

// NewProbes returns Probes without attached programs.
func NewProbes(c *loader.Collection, h *Hooks) *Probes {
	return &Probes{shared: c, hooks: h, at: map[int]Attachment{}}
}

// ProbePath is the path of a probe's redirected packets.
type ProbePath struct {
	VIP    netip.Addr
	Tunnel lb.Tunnel
	Wait   time.Duration // time for an answer
}

// RedirectProbe sends the packets of a socket to the VIP at the endpoint, through interface out.
// Answers from the VIP seem to come from the endpoint's address. Call it before the socket sends.
func (p *Probes) RedirectProbe(fd int, out Interface, w ProbePath) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if ends := now.Add(w.Wait); ends.After(p.busyUntil) {
		p.busyUntil = ends
	}
	if err := p.load(); err != nil {
		return err
	}
	if err := p.attach(out); err != nil {
		return err
	}
	if now.Sub(p.followed) > maxListAge {
		p.followed = now
		p.follow()
	}
	path := bpf.ProbeProbePath{Vip: bpf.ProbeIpAddr(bpf.Addr(w.VIP)), Tunnel: tunnel(w.Tunnel), Wait: p.shared.Jiffies(w.Wait)}
	if err := p.objects.ProbeWays.Put(int32(fd), path); err != nil {
		return fmt.Errorf("redirect a probe to VIP %s: %w", w.VIP, err)
	}
	return nil
}

func tunnel(t lb.Tunnel) uint32 {
	switch t {
	case lb.TunnelIPIP:
		return uint32(bpf.ProbeProbeTunnelPROBE_IPIP)
	case lb.TunnelGUE:
		return uint32(bpf.ProbeProbeTunnelPROBE_GUE)
	}
	return uint32(bpf.ProbeProbeTunnelPROBE_NO_TUNNEL)
}

func (p *Probes) load() error {
	if p.objects != nil {
		return nil
	}
	spec, err := bpf.LoadProbe()
	if err != nil {
		return fmt.Errorf("read the BPF object of probes: %w", err)
	}
	if err := p.makeAnswers(spec.Maps[answers].InnerMap); err != nil {
		return err
	}
	var o bpf.ProbeObjects
	if err := spec.LoadAndAssign(&o, &ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{answers: p.shared.Maps.ProbeAnswers}, Cache: bpf.KernelTypes()}); err != nil {
		return errors.Join(fmt.Errorf("load the programs of probes: %w", err), p.shared.Maps.ProbeAnswers.Delete(uint32(0)))
	}
	p.objects = &o
	return nil
}

// answers is the map that the programs share with firewall rules.
const answers = "probe_answers"

func (p *Probes) makeAnswers(spec *ebpf.MapSpec) error {
	rows, err := ebpf.NewMap(spec)
	if err == nil {
		defer rows.Close()
		err = p.shared.Maps.ProbeAnswers.Put(uint32(0), rows)
	}
	if err != nil {
		return fmt.Errorf("make the map of answers to probes: %w", err)
	}
	return nil
}

// unload releases the programs, and the expected answers.
func (p *Probes) unload() error {
	if p.objects == nil {
		return nil
	}
	o := p.objects
	p.objects = nil
	return errors.Join(o.Close(), p.shared.Maps.ProbeAnswers.Delete(uint32(0)))
}

// attach attaches the programs to an interface, once.
func (p *Probes) attach(i Interface) error {
	if p.at[i.Index] != nil {
		return nil
	}
	in, out := p.objects.LoxilbProbeIn, p.objects.LoxilbProbeOut
	if i.Layer3 {
		in, out = p.objects.LoxilbProbeIn3, p.objects.LoxilbProbeOut3
	}
	a, err := attachProbes(i, p.hooks.Hook(), in, out)
	if err != nil {
		return fmt.Errorf("attach the programs of probes to %s: %w", i.Name, err)
	}
	p.at[i.Index] = a
	return nil
}

// follow attaches the programs to all interfaces of hooks: an answer may arrive at another
// interface than the one that sent the probe.
func (p *Probes) follow() {
	for _, i := range p.hooks.Attached() {
		if err := p.attach(i); err != nil {
			p.shared.Log.Debug("answers to probes may be missed", "error", err)
		}
	}
}

// DetachIdleProbes detaches the programs after idleTimeout without probes, and forgets missing
// interfaces, until ctx ends.
func (p *Probes) DetachIdleProbes(ctx context.Context) {
	if err := detachProbes(p.hooks.Hook()); err != nil {
		p.shared.Log.Warn("probe programs of an earlier process remain", "error", err)
	}
	every := time.NewTicker(idleTimeout / 4)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-every.C:
			p.detachUnused(now)
		}
	}
}

func (p *Probes) detachUnused(now time.Time) {
	all, err := net.Interfaces() // all at once, and first: no probe can start meanwhile
	p.mu.Lock()
	defer p.mu.Unlock()
	for index := range p.at {
		exists := err != nil || interfaceExists(index, all)
		if exists && now.Sub(p.busyUntil) < idleTimeout {
			continue
		}
		_ = p.detach(index) // a missing interface has no programs
	}
	if now.Sub(p.busyUntil) < idleTimeout {
		return
	}
	if err := p.unload(); err != nil {
		p.shared.Log.Debug("cannot unload the programs of probes", "error", err)
	}
}

// interfaceExists reports whether an interface exists. It asks the kernel about interfaces that are
// newer than the list.
func interfaceExists(index int, listed []net.Interface) bool {
	if slices.ContainsFunc(listed, func(i net.Interface) bool { return i.Index == index }) {
		return true
	}
	_, err := net.InterfaceByIndex(index)
	return err == nil
}

func (p *Probes) detach(index int) error {
	a := p.at[index]
	delete(p.at, index)
	return errors.Join(a.Detach(), a.Close())
}

// Close detaches the programs.
func (p *Probes) Close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for index := range p.at {
		_ = p.detach(index) // a missing interface has no programs
	}
	return p.unload()
}

// hookPair has the attachments at the two hooks of an interface.
type hookPair struct{ in, out Attachment }

func (b hookPair) Detach() error { return errors.Join(b.in.Detach(), b.out.Detach()) }
func (b hookPair) Close() error  { return errors.Join(b.in.Close(), b.out.Close()) }

// attachProbes attaches the programs of probes to both hooks of an interface, after others, until
// they are detached.
func attachProbes(i Interface, h Hook, in, out *ebpf.Program) (Attachment, error) {
	a, err := attachProbe(i, h, ingress, in)
	if err != nil {
		return nil, err
	}
	b, err := attachProbe(i, h, egress, out)
	if err != nil {
		return nil, errors.Join(err, Remove(a))
	}
	return hookPair{a, b}, nil
}

func attachProbe(i Interface, h Hook, at side, prog *ebpf.Program) (Attachment, error) {
	if h != HookTCX {
		return probing.attach(i.Index, at, prog, &Exchange{})
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: i.Index, Program: prog, Attach: at.tcx()})
	if err != nil {
		return nil, err
	}
	return Unpinned(l), nil
}

// detachProbes removes leftovers of a killed process. With tcx there are none.
func detachProbes(h Hook) error {
	if h == HookTCX {
		return nil
	}
	return probing.detachAll()
}
