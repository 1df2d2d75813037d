// Package dryrun says what would become of a packet: it runs the program of the data path, loaded a
// second time, on maps that nobody else has. What is configured it shares with the real one; of
// what packets change it has a copy, of the rows that this packet would meet. So the answer is the
// program's own, and no packet, counter or connection of the network is touched.
//
// Which rows those are, the program says: it runs, what it asked for is copied, and it runs again
// until it has met nothing that is missing.
package dryrun

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb"
)

// Packet is what is tried: a whole frame, to the MAC address of the interface that it comes in by.
type Packet struct {
	Frame    []byte
	Ifindex  int
	Layer3   bool   // the interface has no link-layer header
	Mark     uint32 // skb->mark
	Protocol lb.Protocol
	From, To netip.AddrPort // of an echo request, the identifier is the port of From
	// Aim is an endpoint that is to be chosen, if the service's algorithm goes by what packets have
	// changed: its turn has come, it has the fewest connections, or it is the one that the client
	// had.
	Aim netip.AddrPort
}

// keep is how long the second program stays loaded: loading takes a third of a second of a CPU.
const keep = 10 * time.Second

// Runner tries packets. Methods are safe for concurrent use; one packet is tried at a time.
type Runner struct {
	live     *loader.Collection
	services Services
	rules    Rules

	mu     sync.Mutex
	double *double
	closer *time.Timer
	closed bool
}

// Services are what is in the tables.
type Services interface {
	// ServiceOf is the key of the service with an id.
	ServiceOf(id uint32) (bpf.TcServiceKey, bool)
	// Steady calls f while no rows are made or given back; f asks nothing of the services.
	Steady(f func() error) error
}

// Rules are those that packets are judged by.
type Rules interface {
	// RuleOf is the identity of the rule with a counter.
	RuleOf(counter uint32) (identity uint64, ok bool)
	// CounterSegments is how many segments of counters there are.
	CounterSegments() int
}

// New tries what the program of c would do. Nothing is loaded yet.
func New(c *loader.Collection, s Services, r Rules) *Runner {
	return &Runner{live: c, services: s, rules: r}
}

// Try says what would become of a packet now.
func (r *Runner) Try(p *Packet) (*Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errors.New("the data path is being closed")
	}
	if r.double == nil {
		d, err := newDouble(r.live, r.rules)
		if err != nil {
			return nil, fmt.Errorf("load the program a second time: %w", err)
		}
		r.double = d
		r.closer = time.AfterFunc(keep, r.unload)
	}
	r.closer.Reset(keep)
	return r.try(p)
}

// unload gives the second program up.
func (r *Runner) unload() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.double == nil {
		return
	}
	if err := r.double.close(); err != nil {
		r.live.Log.Error("maps of a dry run cannot be closed", "error", err)
	}
	r.double = nil
}

// Close gives up what is loaded.
func (r *Runner) Close() {
	r.mu.Lock()
	r.closed = true
	if r.closer != nil {
		r.closer.Stop()
	}
	r.mu.Unlock()
	r.unload()
}
