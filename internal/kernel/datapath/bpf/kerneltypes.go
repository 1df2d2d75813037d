package bpf

import (
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/cilium/ebpf/btf"
)

// keepTypes is the time for which the kernel's types stay in memory after a use. A start loads
// several programs with them, and an idle daemon frees these megabytes.
const keepTypes = 5 * time.Second

var kernelTypes struct {
	mu   sync.Mutex
	last weak.Pointer[btf.Cache]
}

// KernelTypes returns the BTF types of the running kernel, whose parsing takes 15 ms of CPU time.
// Programs that are loaded within keepTypes share them.
func KernelTypes() *btf.Cache {
	kernelTypes.mu.Lock()
	defer kernelTypes.mu.Unlock()
	types := kernelTypes.last.Value()
	if types == nil {
		types = btf.NewCache()
		kernelTypes.last = weak.Make(types)
	}
	time.AfterFunc(keepTypes, func() { runtime.KeepAlive(types) })
	return types
}
