package rig

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// Traffic exchanges lines over a number of connections to an echo service, as fast as it can.
type Traffic struct {
	wg    sync.WaitGroup
	stop  chan struct{}
	mu    sync.Mutex
	err   error
	lines int
}

// StartTraffic opens connections and exchanges lines over each until Finish.
func StartTraffic(r *Rig, address string, connections int) *Traffic {
	f := &Traffic{stop: make(chan struct{})}
	for i := range connections {
		c := r.Dial(address)
		f.wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-f.stop:
					return
				default:
				}
				err := Exchange(c, fmt.Sprintf("connection %d line %d\n", i, n))
				f.mu.Lock()
				if err != nil && f.err == nil {
					f.err = fmt.Errorf("connection %d line %d: %w", i, n, err)
				}
				f.lines++
				f.mu.Unlock()
				if err != nil {
					return
				}
				time.Sleep(time.Millisecond) // leave CPU time to others
			}
		})
	}
	return f
}

// Count returns how many lines the service has returned.
func (f *Traffic) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lines
}

// AwaitLines waits until every connection has exchanged more lines.
func (f *Traffic) AwaitLines(t testing.TB, connections int) {
	t.Helper()
	before := f.Count()
	labtest.Eventually(t, Patience, func(context.Context) error {
		if n := f.Count(); n < before+3*connections {
			return fmt.Errorf("only %d lines came back", n-before)
		}
		return nil
	})
}

// Finish stops and returns the first error of any connection.
func (f *Traffic) Finish() error {
	close(f.stop)
	f.wg.Wait()
	return f.err
}

// ServeEcho starts echo servers on :7 of every endpoint.
func ServeEcho(r *Rig) {
	r.T.Helper()
	for _, h := range r.Endpoints {
		if err := h.ServeTCP(":7", netnstest.Echo); err != nil {
			r.T.Fatal(err)
		}
	}
}

// ServeEchoes starts echo servers on every endpoint, and creates services for them: port 7 for TCP,
// port 53 for UDP.
func (r *Rig) ServeEchoes() {
	r.T.Helper()
	r.ServeUDPEcho()
	for _, h := range r.Endpoints {
		if err := h.ServeTCP(":5001", netnstest.Echo); err != nil {
			r.T.Fatal(err)
		}
	}
	for vip, endpoints := range map[string]string{VIP4: Endpoints4(), VIP6: Endpoints6()} {
		r.Loxicmd("create lb %s --tcp=7:5001 --endpoints=%s", vip, endpoints)
		r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s", vip, endpoints)
	}
}
