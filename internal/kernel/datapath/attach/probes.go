package attach

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/internal/kernel/datapath/links"
)

// both is what is at the two hooks of an interface.
type both struct{ in, out links.Attachment }

func (b both) Detach() error { return errors.Join(b.in.Detach(), b.out.Detach()) }
func (b both) Close() error  { return errors.Join(b.in.Close(), b.out.Close()) }

// Probes puts the programs of probes at both hooks of an interface, behind others, until they are
// detached.
func Probes(i Interface, h Hook, in, out *ebpf.Program) (links.Attachment, error) {
	a, err := probes(i, h, ingress, in)
	if err != nil {
		return nil, err
	}
	b, err := probes(i, h, egress, out)
	if err != nil {
		return nil, errors.Join(err, links.Remove(a))
	}
	return both{a, b}, nil
}

func probes(i Interface, h Hook, at side, prog *ebpf.Program) (links.Attachment, error) {
	if h != HookTCX {
		return probing.attach(i.Index, at, prog, &links.Exchange{})
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: i.Index, Program: prog, Attach: at.tcx()})
	if err != nil {
		return nil, err
	}
	return links.Unpinned(l), nil
}

// DetachProbes takes away what a process that was killed has left of them: by tcx nothing.
func DetachProbes(h Hook) error {
	if h == HookTCX {
		return nil
	}
	return probing.detachAll()
}

// Attached are the interfaces where the programs are.
func (h *Hooks) Attached() []Interface {
	h.mu.RLock()
	defer h.mu.RUnlock()
	list := make([]Interface, 0, len(h.attached))
	for _, a := range h.attached {
		list = append(list, a.Interface)
	}
	return list
}
