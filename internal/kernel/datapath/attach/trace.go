package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
)

// tracing has the tracing programs that were needed so far, by kind.
type tracing struct{ programs map[hookKind]*ebpf.Program }

// hookKind is the kind of hook of a program.
type hookKind struct {
	layer3 bool
	at     side
}

func (t *tracing) close() error {
	if t == nil {
		return nil
	}
	var errs []error
	for _, p := range t.programs {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// program returns the program to attach: the tracing one while tracing is on.
func (h *Hooks) program(layer3 bool, at side) (*ebpf.Program, error) {
	if h.tracing == nil {
		return h.programs.Program(layer3, at == egress)
	}
	kind := hookKind{layer3, at}
	if p := h.tracing.programs[kind]; p != nil {
		return p, nil
	}
	p, err := h.programs.LoadTracing(layer3, at == egress)
	if err == nil {
		h.tracing.programs[kind] = p
	}
	return p, err
}

// Trace replaces the programs at every interface by tracing ones, or restores them. No packet
// passes without a program.
func (h *Hooks) Trace(on bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if on == (h.tracing != nil) {
		return nil
	}
	former := h.tracing
	h.tracing = nil
	if on {
		if err := h.exchange.Watched(); err != nil {
			return err
		}
		h.tracing = &tracing{programs: map[hookKind]*ebpf.Program{}}
	}
	err := h.exchangeAll()
	if err == nil || !on {
		return errors.Join(err, former.close())
	}
	failed := h.tracing
	h.tracing = nil
	return errors.Join(err, h.exchangeAll(), failed.close())
}

// exchangeAll attaches the current programs in all places.
func (h *Hooks) exchangeAll() error {
	var errs []error
	for _, a := range h.attached {
		errs = append(errs, h.exchangeAt(a.Layer3, ingress, a.in), h.exchangeAt(a.Layer3, egress, a.out))
	}
	return errors.Join(errs...)
}

func (h *Hooks) exchangeAt(layer3 bool, at side, place Place) error {
	if place == nil {
		return nil
	}
	prog, err := h.program(layer3, at)
	if err != nil {
		return err
	}
	return h.exchange.Put(place, prog)
}

// program returns the program to attach: the tracing one while tracing is on.
func (x *XDP) program() (*ebpf.Program, error) {
	switch {
	case !x.tracing:
		return x.programs.Programs[xdpProgramName], nil
	case x.traced != nil:
		return x.traced, nil
	}
	var err error
	x.traced, err = x.loadTracing()
	return x.traced, err
}

func (x *XDP) loadTracing() (*ebpf.Program, error) {
	spec, err := bpf.LoadXdpTrace()
	if err != nil {
		return nil, fmt.Errorf("read the XDP object that traces: %w", err)
	}
	if x.mode.multiBuffer() {
		spec.Programs[xdpProgramName].Flags |= unix.BPF_F_XDP_HAS_FRAGS
	}
	return loader.LoadTwin(spec, x.programs.Maps, xdpProgramName)
}

// TryTracing checks whether the kernel accepts the tracing program.
func (x *XDP) TryTracing() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.load(); err != nil {
		return err
	}
	p, err := x.loadTracing()
	return errors.Join(err, p.Close())
}

// Trace replaces the program at every interface by the tracing one, or restores it. No packet
// passes without a program.
func (x *XDP) Trace(on bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if on == x.tracing {
		return nil
	}
	x.tracing = on
	err := x.exchangeAll()
	if err != nil && on {
		x.tracing = false
		err = errors.Join(err, x.exchangeAll())
	}
	if x.traced != nil && !x.tracing {
		err = errors.Join(err, x.traced.Close())
		x.traced = nil
	}
	return err
}

// exchangeAll attaches the current program in all places.
func (x *XDP) exchangeAll() error {
	var errs []error
	for _, a := range x.attached {
		prog, err := x.program()
		if err == nil {
			err = x.exchange.Put(a, prog)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
