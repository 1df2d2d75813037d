package cluster

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFlapper checks what a node that comes and goes costs seven others: no goroutine and no memory
// is left of it, and the CPU time of a return is that of copying its connections.
func TestFlapper(t *testing.T) {
	const many, connections, returns = 8, 2000, maxShort - 1
	all := newNodes(t, many)
	var tables [many]*table
	for i := range tables[:many-1] {
		tables[i] = newTable()
		tables[i].open(connections*i, connections*(i+1), true)
		all.start(i, tables[i], nil)
	}
	settle := func() {
		for i, f := range tables[:many-1] {
			eventually(t, fmt.Sprintf("node %d does not get all connections", i), func() bool { return f.len() == connections*(many-1) })
		}
	}
	settle()
	flap := func() {
		f := newTable()
		_, stop := all.start(many-1, f, nil)
		eventually(t, "the flapper does not get all connections", func() bool { return f.len() == connections*(many-1) })
		stop()
	}
	flap()
	goroutines, before, cpu := runtime.NumGoroutine(), heapBytes(), cpuTime(t)
	for range returns {
		flap()
	}
	spent := (cpuTime(t) - cpu) / returns
	t.Logf("a return costs %v of CPU in all nodes, with %d copies", spent, connections*(many-1))
	if spent > time.Second {
		t.Errorf("a return costs %v of CPU", spent)
	}
	eventually(t, "goroutines are left", func() bool { return runtime.NumGoroutine() <= goroutines+many })
	// buffers of the last return may be in use for a moment longer
	eventually(t, "more than 8 MiB are left in use", func() bool { return heapBytes()-before <= 8<<20 })
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
