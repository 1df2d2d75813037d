package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// memoryCheck is how often memory that is free is looked for, and memoryKept how much of it
	// stays for the next change. Go gives back slowly what is within the goal of its next
	// collection: after 65,536 services in one request, 130 MB.
	memoryCheck = 10 * time.Second
	memoryKept  = 32 << 20 // bytes
)

// returnMemory gives memory that is free back to the kernel until ctx ends.
func returnMemory(ctx context.Context) {
	free := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
	tick := time.NewTicker(memoryCheck)
	defer tick.Stop()
	var live uint64 // when it was given back last
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(free)
		if free[0].Value.Uint64() > memoryKept || free[1].Value.Uint64() > live+memoryKept {
			debug.FreeOSMemory()
			metrics.Read(free)
			live = free[1].Value.Uint64()
		}
	}
}
