package dptest

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// HasTCX reports whether the kernel supports tcx, by a query of the programs at lo.
func HasTCX() bool {
	_, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: ebpf.AttachTCXIngress})
	return err == nil
}
