package attach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"loxilb/internal/lb/report"
)

// Audit checks whether the programs are where the process has attached them; with mend, missing
// ones are attached again.
func (h *Hooks) Audit(mend bool) report.Compared {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := report.Compared{Table: "attachments"}
	for _, a := range h.attached {
		for _, at := range []side{ingress, egress} {
			have := a.on(at)
			if *have == nil {
				continue
			}
			out.Rows++
			fault, err := h.fault(a, at)
			if fault != nil {
				out.Differences = append(out.Differences, report.Difference{
					Table: out.Table, Row: fmt.Sprintf("the program at %s of %s", at, a.Name), What: fault.Error(),
				})
			}
			if fault != nil && mend {
				err = errors.Join(err, h.mend(a, at, fault))
			}
			out.Err = errors.Join(out.Err, err)
		}
	}
	return out
}

func (s side) String() string {
	if s == egress {
		return "egress"
	}
	return "ingress"
}

func (a *attached) on(at side) *Place {
	if at == egress {
		return &a.out
	}
	return &a.in
}

// fault returns what is wrong with an attachment; nil: nothing, or its interface is gone.
func (h *Hooks) fault(a *attached, at side) (fault, err error) {
	prog, err := h.program(a.Layer3, at)
	if err != nil {
		return nil, err
	}
	l, err := netlink.LinkByIndex(a.Index)
	if err != nil {
		return nil, nil //nolint:nilerr // it disappears, and the loop of interfaces is notified
	}
	if h.hook == HookTCX {
		fault = h.folder(at).Check(a.Index, *a.on(at), prog)
		if fault == nil || errors.Is(fault, ErrDetached) || errors.Is(fault, ErrReplaced) || errors.Is(fault, ErrUnpinned) {
			return fault, nil
		}
		return nil, fault
	}
	there, err := balancing.programs(l, at.clsact())
	if err != nil {
		return nil, err
	}
	info, err := h.exchange.Current(prog).Info()
	if err != nil {
		return nil, fmt.Errorf("read program: %w", err)
	}
	id, _ := info.ID()
	switch {
	case len(there) == 0:
		return ErrDetached, nil
	case !slices.Contains(there, ebpf.ProgramID(id)):
		return ErrReplaced, nil
	}
	return nil, nil
}

func (h *Hooks) mend(a *attached, at side, fault error) error {
	prog, err := h.program(a.Layer3, at)
	if err != nil {
		return err
	}
	have := a.on(at)
	if h.hook == HookTCX && !errors.Is(fault, ErrDetached) {
		return h.folder(at).Mend(a.Index, *have, prog)
	}
	if h.hook == HookTCX {
		if err := h.folder(at).Forget(a.Index, *have); err != nil {
			return err
		}
	}
	again, err := h.attach(a.Interface, at)
	if err != nil {
		return fmt.Errorf("attach %s again: %w", a.Name, err)
	}
	*have = again
	return nil
}
