// Package attach attaches programs to interfaces: the packet path at tc hooks (Hooks), the XDP
// program, which runs before tc (XDP), the redirection of probes (Probes), and the removal of
// tunnel headers (Decap).
//
// Pinned links outlive the process. The next process replaces their programs in place, so every
// packet meets a program.
package attach

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/internal/kernel/datapath/loader"
)

// Interface describes an interface for Attach.
type Interface struct {
	Index      int
	Name       string
	Layer3     bool // no link-layer header: tun, wireguard
	Peer       bool // a veth whose other end is in another network namespace
	Bridge     bool
	BridgePort bool
	Queues     bool // of a Peer: as in routing.Link
}

// Hooks attaches the programs to interfaces, and tracks where they are attached. Methods are safe
// for concurrent use.
type Hooks struct {
	programs *loader.Collection
	hook     Hook
	exchange *Exchange

	mu       sync.RWMutex
	attached map[int]*attached // by interface index
	tracing  *tracing          // nil: no tracing

	arrivals arrivals
	follow   func(Interface) // called when an interface is attached; may be nil
	settle   func() error    // called when all selected interfaces are known; may be nil
	settled  bool            // all selected interfaces are known
}

// attached has the attachments of an interface.
type attached struct {
	Interface
	in, out Place // out: the egress program; nil unless there are endpoints on this machine
}

// New returns hooks without attachments.
func New(c *loader.Collection, h Hook, e *Exchange) *Hooks {
	return &Hooks{programs: c, hook: h.resolve(), exchange: e, attached: map[int]*attached{}}
}

// Hook is the kind of hook in use.
func (h *Hooks) Hook() Hook { return h.hook }

// Any reports whether any interface is attached.
func (h *Hooks) Any() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.attached) > 0
}

// Attach attaches the program to the interface's ingress, or replaces an earlier process's program,
// without losing a packet. It is idempotent.
func (h *Hooks) Attach(i Interface) error {
	added, err := h.attachIngress(i)
	if added && h.follow != nil {
		h.follow(i) // without the lock: it may query attachments
	}
	return err
}

func (h *Hooks) attachIngress(i Interface) (added bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.attached[i.Index]; ok {
		return false, nil
	}
	in, err := h.attach(i, ingress)
	if err != nil {
		return false, fmt.Errorf("attach %s: %w", i.Name, err)
	}
	h.attached[i.Index] = &attached{Interface: i, in: in}
	return true, nil
}

// SetEgress attaches the egress program to an attached interface, or detaches it. The program
// handles the answers of endpoints on this machine. It is idempotent, and ignores an interface that
// is not attached.
func (h *Hooks) SetEgress(index int, wanted bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.attached[index]
	if a == nil || wanted == (a.out != nil) {
		return nil
	}
	return h.setEgress(a, wanted)
}

func (h *Hooks) setEgress(a *attached, wanted bool) error {
	var out Place
	var err error
	if wanted {
		out, err = h.attach(a.Interface, egress)
	} else {
		err = Remove(a.out)
	}
	if err != nil {
		return fmt.Errorf("change the egress program of %s: %w", a.Name, err)
	}
	a.out = out
	return nil
}

// SetEgressAll calls SetEgress for every attached interface. It logs failures, and continues.
func (h *Hooks) SetEgressAll(wanted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.attached {
		if wanted == (a.out != nil) {
			continue
		}
		if err := h.setEgress(a, wanted); err != nil {
			h.programs.Log.Warn("cannot change the egress program of an interface", "interface", a.Name, "error", err)
		}
	}
}

func (h *Hooks) folder(at side) LinkFolder {
	return LinkFolder{Path: h.programs.PinFolder(at.pins()), Log: h.programs.Log, Exchange: h.exchange}
}

func (h *Hooks) attach(i Interface, at side) (Place, error) {
	prog, err := h.program(i.Layer3, at)
	if err != nil {
		return nil, err
	}
	if h.hook == HookTCX {
		a, err := h.folder(at).Attach(i.Index, prog, func(prog *ebpf.Program) (link.Link, error) {
			return link.AttachTCX(link.TCXOptions{Interface: i.Index, Program: prog, Attach: at.tcx()})
		})
		if err != nil {
			return nil, err
		}
		return a, balancing.detach(i.Index, at)
	}
	a, err := balancing.attach(i.Index, at, prog, h.exchange)
	if err != nil {
		return nil, err
	}
	return a, h.folder(at).Drop(i.Index)
}

// Replaces reports whether packets at any interface go through a program with other code than this
// process attaches.
func (h *Hooks) Replaces() (bool, error) {
	list, err := h.folder(ingress).Programs()
	if h.hook == HookClsact && err == nil {
		list, err = clsactPrograms()
	}
	if err != nil {
		return false, err
	}
	for _, id := range list {
		same, err := h.sameCode(id)
		if err != nil || !same {
			return err == nil, err
		}
	}
	return false, nil
}

// sameCode reports whether the program with this id has the code of its replacement.
func (h *Hooks) sameCode(id ebpf.ProgramID) (bool, error) {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return false, fmt.Errorf("open the program that is attached: %w", err)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return false, fmt.Errorf("read the program that is attached: %w", err)
	}
	own, err := h.programs.Program(info.Name == loader.Layer3, false)
	if err != nil {
		return false, err
	}
	return SameCode(p, own)
}

// Detach detaches the programs from an interface. It succeeds if the interface is missing or was
// never attached. It may be retried after a failure.
func (h *Hooks) Detach(index int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	a, ok := h.attached[index]
	if !ok {
		return nil
	}
	if a.out != nil {
		if err := h.setEgress(a, false); err != nil {
			return err
		}
	}
	if err := Remove(a.in); err != nil {
		return fmt.Errorf("detach interface %d: %w", index, err)
	}
	delete(h.attached, index)
	return nil
}

// DetachOrphans detaches interfaces for which keep returns false, including those of an earlier
// process. Call it once the selected interfaces are known.
func (h *Hooks) DetachOrphans(keep func(index int) bool) error {
	err := h.detachOrphans(keep)
	if h.settle != nil {
		err = errors.Join(err, h.settle()) // without the lock, like follow
	}
	return err
}

func (h *Hooks) detachOrphans(keep func(index int) bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settled = true
	return errors.Join(
		h.folder(ingress).DropOthers(keep),
		h.folder(egress).DropOthers(func(index int) bool {
			a := h.attached[index]
			return keep(index) && a != nil && a.out != nil
		}),
	)
}

// Settled reports whether all selected interfaces have been known since the process started.
func (h *Hooks) Settled() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.settled
}

// Close leaves pinned links attached, and detaches the rest.
func (h *Hooks) Close() error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	errs := []error{h.tracing.close()}
	for _, a := range h.attached {
		for _, side := range []Place{a.in, a.out} {
			if side != nil {
				errs = append(errs, Release(side, h.programs.Pinned()))
			}
		}
	}
	return errors.Join(errs...)
}

// Attached returns the interfaces with programs.
func (h *Hooks) Attached() []Interface {
	h.mu.RLock()
	defer h.mu.RUnlock()
	list := make([]Interface, 0, len(h.attached))
	for _, a := range h.attached {
		list = append(list, a.Interface)
	}
	return list
}
