package attach

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"loxilb/internal/kernel/datapath/pins"
)

// Hook is the kind of tc hook.
type Hook string

// The hooks. tcx (kernel 6.6) attaches and detaches in one system call, keeps other programs, and
// can be pinned; clsact is its predecessor.
const (
	HookAuto   Hook = "auto" // tcx if the kernel has it, clsact otherwise
	HookTCX    Hook = "tcx"
	HookClsact Hook = "clsact"
)

// resolve replaces HookAuto with the best hook of the kernel. A kernel without tcx refuses to list
// the attachments of lo.
func (h Hook) resolve() Hook {
	const lo = 1
	if h != HookAuto && h != "" {
		return h
	}
	if _, err := link.QueryPrograms(link.QueryOptions{Target: lo, Attach: ebpf.AttachTCXIngress}); err != nil {
		return HookClsact
	}
	return HookTCX
}

// side is ingress or egress of an interface.
type side int

const (
	ingress side = iota // every arriving packet
	egress              // only while endpoints are on this machine
)

func (s side) tcx() ebpf.AttachType {
	if s == egress {
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachTCXIngress
}

func (s side) clsact() uint32 {
	if s == egress {
		return netlink.HANDLE_MIN_EGRESS
	}
	return netlink.HANDLE_MIN_INGRESS
}

// pins returns the name of the folder of pinned links in the pin directory.
func (s side) pins() string {
	if s == egress {
		return pins.Egress
	}
	return pins.Ingress
}
