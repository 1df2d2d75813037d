// Package dryrun predicts how a packet would be handled. It runs a replica of the data path's
// program, which shares the configuration of the live program and has copies of the rows that the
// packet could read and change. The program itself gives the answer, and no packet, counter or
// connection of the network is affected.
//
// The program itself shows which rows it needs: it runs, the rows that it missed are copied, and it
// runs again until it misses none.
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

// Packet is the packet to try: a whole frame, to the MAC address of the interface at which it
// arrives.
type Packet struct {
	Frame    []byte
	Ifindex  int
	Layer3   bool   // the interface has no link-layer header
	Mark     uint32 // skb->mark
	Protocol lb.Protocol
	From, To netip.AddrPort // of an echo request, the identifier is the port of From
	// Prefer is the endpoint to choose if the choice depends on data that packets change: the
	// position of round robin, numbers of connections, or the client's previous endpoint. The
	// zero value leaves that data as it is now.
	Prefer netip.AddrPort
}

// keepLoaded is how long the replica stays loaded after a run: loading takes a third of a second of
// CPU time.
const keepLoaded = 10 * time.Second

// Runner tries packets. Methods are safe for concurrent use; one packet is tried at a time.
type Runner struct {
	live     *loader.Collection
	services Services
	rules    Rules

	mu      sync.Mutex
	replica *replica
	closer  *time.Timer
	closed  bool
}

// Services are the services in the tables.
type Services interface {
	// ServiceOf returns the key of the service with an id.
	ServiceOf(id uint32) (bpf.TcServiceKey, bool)
	// WithRowsLocked calls f while no rows are made or released; f must not use the services.
	WithRowsLocked(f func() error) error
}

// Rules are the firewall rules of packets.
type Rules interface {
	// RuleOf returns the identity of the rule with a counter.
	RuleOf(counter uint32) (identity uint64, ok bool)
	// CounterSegments returns the number of segments of counters.
	CounterSegments() int
}

// New returns a Runner for the program of c. Nothing is loaded yet.
func New(c *loader.Collection, s Services, r Rules) *Runner {
	return &Runner{live: c, services: s, rules: r}
}

// Try predicts how a packet would be handled now.
func (r *Runner) Try(p *Packet) (*Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errors.New("the data path is being closed")
	}
	if r.replica == nil {
		d, err := newReplica(r.live, r.rules)
		if err != nil {
			return nil, fmt.Errorf("load a replica of the program: %w", err)
		}
		r.replica = d
		r.closer = time.AfterFunc(keepLoaded, r.unload)
	}
	r.closer.Reset(keepLoaded)
	return r.try(p)
}

// unload releases the replica.
func (r *Runner) unload() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.replica == nil {
		return
	}
	if err := r.replica.close(); err != nil {
		r.live.Log.Error("maps of a dry run cannot be closed", "error", err)
	}
	r.replica = nil
}

// Close releases the loaded programs and maps.
func (r *Runner) Close() {
	r.mu.Lock()
	r.closed = true
	if r.closer != nil {
		r.closer.Stop()
	}
	r.mu.Unlock()
	r.unload()
}
