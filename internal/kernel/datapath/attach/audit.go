package attach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
)

// Audit checks whether the programs are still attached where this process attached them; with
// repair, it attaches missing ones.
func (h *Hooks) Audit(repair bool) report.Compared {
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
			if fault != nil && repair {
				err = errors.Join(err, h.repair(a, at, fault))
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

// fault describes the fault of an attachment; nil: none, or its interface no longer exists.
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

func (h *Hooks) repair(a *attached, at side, fault error) error {
	prog, err := h.program(a.Layer3, at)
	if err != nil {
		return err
	}
	have := a.on(at)
	if h.hook == HookTCX && !errors.Is(fault, ErrDetached) {
		return h.folder(at).Repair(a.Index, *have, prog)
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

// Audit compares the XDP program's interfaces and attachments with those written by this process;
// with repair, it repairs differences. Without the program there is nothing to compare.
func (x *XDP) Audit(repair bool) []report.Compared {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.programs == nil {
		return nil
	}
	addresses, targets := map[uint32]bpf.XdpLinkAddress{}, map[uint32]bool{}
	for index, i := range x.described {
		addresses[uint32(index)] = bpf.XdpLinkAddress{Mac: i.MAC}
		targets[uint32(index)] = i.Target
	}
	m := x.programs.Maps["xdp_addresses"]
	comparison := rows.Comparison[uint32, bpf.XdpLinkAddress]{
		Table: "xdp_addresses", Map: m, Want: addresses, Name: rows.Numbered[uint32]("interface"),
		Each: func(f func(uint32, bpf.XdpLinkAddress)) error {
			return rows.EachBatch(m, int(m.MaxEntries()), func(ids []uint32, list []bpf.XdpLinkAddress) {
				for i, id := range ids {
					f(id, list[i])
				}
			})
		},
		Others: func(_ uint32, a bpf.XdpLinkAddress) bool { return a == bpf.XdpLinkAddress{} },
		Put:    func(index uint32, a bpf.XdpLinkAddress) error { return m.Put(index, a) },
	}
	return []report.Compared{comparison.Check(repair), x.auditTargets(targets, repair), x.auditLinks(repair)}
}

// auditTargets checks the interfaces to which the program redirects. User space can read only these
// of a map of devices.
func (x *XDP) auditTargets(want map[uint32]bool, repair bool) report.Compared {
	out := report.Compared{Table: "xdp_targets", Rows: len(want)}
	m := x.programs.Maps["xdp_targets"]
	for index, wanted := range want {
		var to uint32
		there := m.Lookup(index, &to) == nil && to == index
		if there == wanted {
			continue
		}
		what := "is missing"
		if there {
			what = "exists, but should not"
		}
		out.Differences = append(out.Differences, report.Difference{Table: out.Table, Row: fmt.Sprintf("interface %d", index), What: what})
		if repair {
			out.Err = errors.Join(out.Err, x.describe(x.described[int(index)]))
		}
	}
	return out
}

func (x *XDP) auditLinks(repair bool) report.Compared {
	out := report.Compared{Table: "attachments", Rows: len(x.attached)}
	prog, err := x.program()
	if err != nil {
		out.Err = err
		return out
	}
	for index, a := range x.attached {
		fault := x.folder(x.mode).Check(index, a.Place, prog)
		if fault == nil {
			continue
		}
		out.Differences = append(out.Differences, report.Difference{Table: out.Table, Row: "the XDP program at " + a.name, What: fault.Error()})
		if !repair {
			continue
		}
		if !errors.Is(fault, ErrDetached) {
			out.Err = errors.Join(out.Err, x.folder(x.mode).Repair(index, a.Place, prog))
			continue
		}
		i := x.described[index]
		err := x.folder(x.mode).Forget(index, a.Place)
		delete(x.attached, index)
		out.Err = errors.Join(out.Err, err, x.attach(i))
	}
	return out
}
