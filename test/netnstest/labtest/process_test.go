package labtest

import (
	"runtime"
	"sync"
	"testing"

	"loxilb/test/netnstest"
)

// TestProcessOutlivesThreads: a process goes on though threads of this one end, as those of tests
// do that were in other namespaces.
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
			threads.Go(runtime.LockOSThread) // and never unlocked: the thread ends with the goroutine
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
