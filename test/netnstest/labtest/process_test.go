package labtest

import (
	"runtime"
	"sync"
	"testing"

	"loxilb/test/netnstest"
)

// TestProcessOutlivesThreads checks that a process continues when threads of this process end.
// Tests that entered other namespaces leave such threads.
func TestProcessOutlivesThreads(t *testing.T) {
	t.Parallel()
	h, _ := Pair(t)
	for range 10 {
		p, err := h.Start(netnstest.Command{Args: []string{"sleep", "60"}})
		if err != nil {
			t.Fatal(err)
		}
		var threads sync.WaitGroup
		for range 100 {
			threads.Go(runtime.LockOSThread) // never unlocked, so the thread ends with the goroutine
		}
		threads.Wait()
		select {
		case <-p.Done():
			t.Fatalf("the process has ended: %v", p.Wait())
		default:
			p.Stop()
		}
	}
}
