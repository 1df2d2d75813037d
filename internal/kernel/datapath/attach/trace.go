package attach

import (
	"errors"

	"github.com/cilium/ebpf"
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

// program returns the one to attach.
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
