package reconcile

import (
	"net/netip"
	"sync"

	"loxilb/internal/compile"
	"loxilb/internal/datapath/bpf"
	"loxilb/internal/desired"
	"loxilb/internal/lb"
	"loxilb/internal/netdev"
	"loxilb/internal/store"
)

// Attacher is the data path, as far as policers and mirrors are concerned.
type Attacher interface {
	SetAttached(*bpf.Attached) (failed map[string]error, err error)
}

// attached makes what all policers and mirrors say together: a service, a prefix or an interface has one row for what it has of both.
type attached struct {
	desired *desired.State
	table   Attacher
	links   func() []netdev.Link

	mu     sync.Mutex
	places map[string]int // by the name of a policer: how many have it
}

// apply has the data path do what the store says.
func (a *attached) apply(now *store.Snapshot) (failed map[string]error, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := &bpf.Attached{
		Policers: map[string]bpf.TcPolicer{}, Services: map[bpf.TcServiceKey]bpf.TcAttachments{},
		Sources: map[netip.Prefix]bpf.TcAttachments{}, Ports: map[int]bpf.TcAttachments{},
	}
	a.places = map[string]int{}
	for p := range a.desired.Policers.All(now) {
		all.Policers[p.Name] = compile.Policer(&p)
		key := bpf.NameKey(p.Name)
		a.places[p.Name] = a.attach(all, now, p.Attachment, func(row *bpf.TcAttachments) *[2]uint64 { return &row.Policers }, key)
	}
	return a.table.SetAttached(all)
}

// attach enters a key where it belongs, and returns in how many places. What is attached to a service by its key goes before what has its name.
func (a *attached) attach(all *bpf.Attached, now *store.Snapshot, at lb.Attachment, keys func(*bpf.TcAttachments) *[2]uint64, key uint64) (places int) {
	enter := func(row bpf.TcAttachments, first bool) bpf.TcAttachments {
		list := keys(&row)
		for i, back := range []bool{false, true} {
			if at.Direction.Has(back) && (first || list[i] == 0) {
				list[i] = key
			}
		}
		places++
		return row
	}
	switch at.To {
	case lb.AttachPort:
		for _, l := range a.links() {
			if l.Name == at.Name {
				all.Ports[l.Index] = enter(all.Ports[l.Index], true)
			}
		}
	case lb.AttachSource:
		if p, err := at.Prefix(); err == nil {
			all.Sources[p] = enter(all.Sources[p], true)
		}
	case lb.AttachService:
		for _, k := range a.services(now, at) {
			key := compile.Key(k)
			all.Services[key] = enter(all.Services[key], at.Name == k.String())
		}
	}
	return places
}

func (a *attached) services(now *store.Snapshot, at lb.Attachment) (keys []lb.Key) {
	name, key, err := at.Service()
	if err != nil {
		return nil
	}
	if name == "" {
		if _, there := a.desired.Services.Get(now, key); there {
			keys = append(keys, key)
		}
		return keys
	}
	for _, s := range a.desired.Services.ByName(now, name) {
		keys = append(keys, s.Key)
	}
	return keys
}

// count is in how many places a policer is.
func (a *attached) count(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.places[name]
}
