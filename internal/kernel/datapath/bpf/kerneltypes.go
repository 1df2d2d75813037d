package bpf

import (
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/cilium/ebpf/btf"
)

// keepTypes is how long the kernel's types are kept after a use. A start needs them for several
// programs, and an idle daemon should not keep megabytes.
const keepTypes = 5 * time.Second

var kernelTypes struct {
	mu   sync.Mutex
	last weak.Pointer[btf.Cache]
}

// KernelTypes returns the types of the running kernel, which take 15 ms of CPU to read. All
// programs that are loaded within seconds share them.
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
