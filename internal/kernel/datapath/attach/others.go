package attach

import (
	"bytes"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"loxilb/internal/lb/report"
)

// ownPrefix is the prefix of the names of loxilb's programs.
const ownPrefix = "loxilb"

// Interfaces returns the names of the attached interfaces.
func (h *Hooks) Interfaces() (names []string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, a := range h.attached {
		names = append(names, a.Name)
	}
	return names
}

// Others returns other owners' programs at the ingress hooks, and whether they see packets first.
// It leaves out unreadable interfaces.
func (h *Hooks) Others() (out []report.OtherProgram) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, a := range h.attached {
		l, err := netlink.LinkByIndex(a.Index)
		if err != nil {
			continue
		}
		if xdp := l.Attrs().Xdp; xdp != nil && xdp.Attached {
			out = appendOther(out, a.Name, "XDP", ebpf.ProgramID(xdp.ProgId), true)
		}
		if h.hook == HookTCX {
			out = append(out, othersAtTCX(a)...)
			continue
		}
		filters, _ := netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
		for _, f := range filters {
			if b, ok := f.(*netlink.BpfFilter); ok {
				out = appendOther(out, a.Name, "ingress", ebpf.ProgramID(b.Id), f.Attrs().Priority < balancing.priority)
			}
		}
	}
	return out
}

// MayQueue reports whether packets may bypass an interface's egress path: it has no queueing
// discipline, and no egress program of another owner. It is false without tcx, and on errors.
func (h *Hooks) MayQueue(index int) bool {
	if h.hook != HookTCX {
		return false
	}
	q, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXEgress})
	if err != nil || slices.ContainsFunc(q.Programs, func(p link.AttachedProgram) bool { return !isOwn(programName(p.ID)) }) {
		return false
	}
	at := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index}} // only the index is used
	filters, err := netlink.FilterList(at, netlink.HANDLE_MIN_EGRESS)
	return err == nil && len(filters) == 0 && disciplineOf(index) == "noqueue"
}

// disciplineOf returns the queueing discipline of an interface; "" if it is unreadable. The kernel
// sends no link event when the discipline changes.
func disciplineOf(index int) string {
	about := nl.NewIfInfomsg(unix.AF_UNSPEC)
	about.Index = int32(index)
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	request.AddData(about)
	answers, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil || len(answers) != 1 {
		return ""
	}
	attributes, err := nl.ParseRouteAttrAsMap(answers[0][unix.SizeofIfInfomsg:])
	if err != nil {
		return ""
	}
	return string(bytes.TrimRight(attributes[unix.IFLA_QDISC].Value, "\x00"))
}

// othersAtTCX returns other owners' programs at tcx ingress. The kernel lists programs in the order
// in which they run.
func othersAtTCX(a *attached) (out []report.OtherProgram) {
	q, err := link.QueryPrograms(link.QueryOptions{Target: a.Index, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return nil
	}
	before := true
	for _, p := range q.Programs {
		if isOwn(programName(p.ID)) {
			before = false
			continue
		}
		out = appendOther(out, a.Name, "ingress", p.ID, before)
	}
	return out
}

func appendOther(out []report.OtherProgram, at, hook string, id ebpf.ProgramID, before bool) []report.OtherProgram {
	name := programName(id)
	if isOwn(name) {
		return out
	}
	return append(out, report.OtherProgram{Interface: at, Hook: hook, Name: name, Before: before})
}

func isOwn(name string) bool { return strings.HasPrefix(name, ownPrefix) }

func programName(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return "unknown"
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil || info.Name == "" {
		return "without a name"
	}
	return info.Name
}
