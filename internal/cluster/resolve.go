package cluster

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"loxilb/internal/lb/report"
)

const (
	// resolveEvery is how often names of peers are looked up, and resolveTime how long that
	// takes at most.
	resolveEvery = 10 * time.Second
	resolveTime  = 5 * time.Second
	// maxAddresses is how many addresses of a name are used: each one may have a queue.
	maxAddresses = 64
)

// name is the state of a configured name or address of a node.
type name struct {
	addresses []string // HOST:PORT each, as found last
	looked    bool     // it was looked up at least once
	busy      bool     // it is being looked up
	problem   string   // predicate of a sentence about the name; empty: no problem
	since     time.Time
}

// lookUpResult is the result of a look-up.
type lookUpResult struct {
	name      string
	addresses []string
	err       error
}

// resolve keeps a peer for each address of the configured names until ctx ends. Names are looked up
// at once, so a slow one does not delay others.
func (n *Node) resolve(ctx context.Context, running *sync.WaitGroup) {
	results := make(chan lookUpResult)
	for ctx.Err() == nil {
		configured, changed := n.names()
		for _, one := range n.namesToResolve(configured) {
			running.Go(func() {
				f := n.lookUp(ctx, one)
				select {
				case results <- f:
				case <-ctx.Done():
				}
			})
		}
		n.setPeers(ctx, running)
		n.forgetSources()
		due := time.NewTimer(n.resolveEvery)
		for waiting := true; waiting; {
			select {
			case f := <-results:
				n.setAddresses(&f)
				n.setPeers(ctx, running)
			case <-ctx.Done():
				waiting = false
			case <-changed:
				waiting = false
			case <-due.C:
				waiting = false
			}
		}
		due.Stop()
	}
}

// namesToResolve forgets names that are no longer configured, and returns the names to look up.
// Addresses need no look-up.
func (n *Node) namesToResolve(configured []string) (list []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for known := range n.named {
		if !slices.Contains(configured, known) {
			delete(n.named, known)
		}
	}
	for _, one := range configured {
		known := n.named[one]
		if known == nil {
			known = &name{}
			n.named[one] = known
		}
		if address, err := netip.ParseAddrPort(one); err == nil {
			known.addresses, known.looked = []string{address.String()}, true
		} else if !known.busy {
			known.busy = true
			list = append(list, one)
		}
	}
	return list
}

// lookUp looks up a name.
func (n *Node) lookUp(ctx context.Context, configured string) lookUpResult {
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	host, port, err := net.SplitHostPort(configured)
	if err != nil {
		return lookUpResult{configured, nil, err}
	}
	list, err := net.DefaultResolver.LookupHost(ctx, host)
	for i := range list {
		list[i] = net.JoinHostPort(list[i], port)
	}
	slices.Sort(list)
	return lookUpResult{configured, slices.Compact(list), err}
}

// setAddresses records the addresses of a name. If there are none, the previous ones stay: the
// resolver may be down.
func (n *Node) setAddresses(f *lookUpResult) {
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.named[f.name]
	if one == nil {
		return // it is no longer configured
	}
	before, problem := one.addresses, one.problem
	one.busy, one.looked, one.problem = false, true, ""
	switch {
	case f.err != nil:
		one.problem = "cannot be resolved: " + f.err.Error()
		if len(before) > 0 {
			one.problem += "; " + strings.Join(before, ", ") + " stays in use"
		}
		if problem != one.problem {
			n.Log.Warn("the name of a node of the cluster cannot be resolved", "name", f.name, "error", f.err)
		}
	case len(f.addresses) > maxAddresses:
		one.problem = fmt.Sprintf("has %d addresses: the first %d are used", len(f.addresses), maxAddresses)
		one.addresses = f.addresses[:maxAddresses]
	default:
		one.addresses = f.addresses
	}
	if problem != one.problem {
		one.since = time.Now()
	}
	if before != nil && !slices.Equal(before, one.addresses) {
		n.Log.Info("the name of a node of the cluster has other addresses", "name", f.name, "before", before, "now", one.addresses)
	}
}

// setPeers makes a peer of each address, and ends peers at addresses that no name has.
func (n *Node) setPeers(ctx context.Context, running *sync.WaitGroup) {
	n.mu.Lock()
	defer n.mu.Unlock()
	wanted := map[string]bool{}
	for _, one := range n.named {
		for _, a := range one.addresses {
			wanted[a] = true
		}
	}
	kept := n.peers[:0:0]
	for _, p := range n.peers {
		if wanted[p.address] {
			kept = append(kept, p)
			delete(wanted, p.address)
		} else {
			p.cancel()
		}
	}
	for _, address := range slices.Sorted(maps.Keys(wanted)) {
		own, cancel := context.WithCancel(ctx)
		p := &peer{node: n, address: address, queue: newQueue(), cancel: cancel, retryNow: make(chan struct{}, 1), rerouted: make(chan struct{}, 1)}
		p.now = report.ClusterPeer{Address: address, State: report.PeerDown, Reason: "not connected yet", Since: time.Now()}
		kept = append(kept, p)
		running.Go(func() { p.run(own) })
	}
	n.peers = kept
}

// unresolved returns a row for each name without an address, and the problems of other names. The
// caller must hold n.mu.
func (n *Node) unresolved() (rows []report.ClusterPeer, problems []string) {
	for _, called := range slices.Sorted(maps.Keys(n.named)) {
		one := n.named[called]
		switch {
		case one.problem == "":
		case len(one.addresses) == 0:
			rows = append(rows, report.ClusterPeer{
				Address: called, State: report.PeerDown, Reason: "its name " + one.problem, Since: one.since,
			})
		default:
			problems = append(problems, "the name "+called+" "+one.problem)
		}
	}
	return rows, problems
}
