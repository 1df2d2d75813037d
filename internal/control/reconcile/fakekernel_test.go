package reconcile

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
)

// fakeKernel is the data path, the VIPs, the sources and the endpoints in one, to record the order
// of events.
type fakeKernel struct {
	mu        sync.Mutex
	events    []string
	services  map[bpf.TcServiceKey]bool
	vips      map[netip.Addr]bool
	hosts     []netip.Addr
	updates   int
	fail      func(event string) error // nil: nothing fails
	onWrite   func(datapath.Change)    // called for each written service, unless nil
	hold      chan struct{}            // Apply blocks until it is closed, unless nil
	source    netip.Addr               // the source that endpoints see; invalid: no route
	routed    bool                     // endpoints are behind a router
	lookups   int
	drains    []lb.Drain
	roleCalls []string     // notifications of roles
	lookup    func() error // nil: lookups of sources succeed at once
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{services: map[bpf.TcServiceKey]bool{}, vips: map[netip.Addr]bool{}}
}

func (w *fakeKernel) SetDrains(drains []lb.Drain) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drains = drains
}

func (w *fakeKernel) role(one lb.Instance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.roleCalls = append(w.roleCalls, one.Name+" "+string(one.Role))
}

func (w *fakeKernel) record(format string, args ...any) error {
	event := fmt.Sprintf(format, args...)
	w.events = append(w.events, event)
	if w.fail != nil {
		return w.fail(event)
	}
	return nil
}

func (w *fakeKernel) Apply(changes []datapath.Change) []error {
	w.mu.Lock()
	hold := w.hold
	w.mu.Unlock()
	if hold != nil {
		<-hold
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	errs := make([]error, len(changes))
	for i, c := range changes {
		if c.Table == nil {
			if errs[i] = w.record("delete %s", c.Key); errs[i] == nil {
				delete(w.services, c.Key)
			}
			continue
		}
		source := ""
		if a := c.Table.Endpoints[0].Source; a != (bpf.TcIpAddr{}) {
			source = " from " + a.Netip().String()
		}
		for _, e := range c.Table.Endpoints {
			if e.CurrentWeight == 0 && e.Weight > 0 {
				source += " without " + e.Addr.Netip().String()
			}
		}
		if errs[i] = w.record("put %s%s", c.Key, source); errs[i] == nil {
			w.services[c.Key] = true
		}
		if w.onWrite != nil {
			w.onWrite(c)
		}
	}
	return errs
}

func (w *fakeKernel) Reserve(int, int) {}

func (w *fakeKernel) CurrentWeights(bpf.TcServiceKey) map[netip.AddrPort]uint32 { return nil }

func (w *fakeKernel) Services() []bpf.TcServiceKey {
	w.mu.Lock()
	defer w.mu.Unlock()
	var keys []bpf.TcServiceKey
	for k := range w.services {
		keys = append(keys, k)
	}
	return keys
}

// fakeOwner is the kernel as the owner of VIPs.
type fakeOwner struct{ *fakeKernel }

func failures(vips []netip.Addr, err error) map[netip.Addr]error {
	failed := map[netip.Addr]error{}
	for _, vip := range vips {
		if err != nil {
			failed[vip] = err
		}
	}
	return failed
}

func (a fakeOwner) Set(_ context.Context, vips []netip.Addr) map[netip.Addr]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.vips)
	failed := map[netip.Addr]error{}
	for _, vip := range vips {
		one := []netip.Addr{vip}
		if a.fail != nil {
			maps.Copy(failed, failures(one, a.fail(fmt.Sprintf("acquire %v", one))))
		}
		a.vips[vip] = failed[vip] == nil
	}
	return failed
}

func (a fakeOwner) Add(_ context.Context, vips ...netip.Addr) map[netip.Addr]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.record("acquire %v", vips)
	for _, vip := range vips {
		a.vips[vip] = err == nil
	}
	return failures(vips, err)
}

func (a fakeOwner) Remove(_ context.Context, vips ...netip.Addr) map[netip.Addr]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.record("release %v", vips)
	if err == nil {
		for _, vip := range vips {
			delete(a.vips, vip)
		}
	}
	return failures(vips, err)
}

// fakeEndpoints is the kernel as Endpoints.
type fakeEndpoints struct{ *fakeKernel }

func (e fakeEndpoints) Update(changes map[netip.Addr]bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for a, added := range changes {
		if i, found := slices.BinarySearchFunc(e.hosts, a, netip.Addr.Compare); added && !found {
			e.hosts = slices.Insert(e.hosts, i, a)
		} else if !added && found {
			e.hosts = slices.Delete(e.hosts, i, i+1)
		}
	}
	e.updates++
}

// Paths returns the paths to hosts.
func (w *fakeKernel) Paths(_ context.Context, hosts []netip.Addr) (found map[netip.Addr]netdev.Path, missing map[netip.Addr]error, err error) {
	w.mu.Lock()
	w.lookups++
	lookup, source, routed := w.lookup, w.source, w.routed
	w.mu.Unlock()
	if lookup != nil {
		if err := lookup(); err != nil {
			return nil, nil, err
		}
	}
	found = map[netip.Addr]netdev.Path{}
	for _, a := range hosts {
		if source.IsValid() {
			found[a] = netdev.Path{Source: source, Routed: routed}
		}
	}
	return found, nil, nil
}
