package reconcile

import (
	"cmp"
	"context"
	"net/netip"
	"sync"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// Attacher is the part of the data path for policers and mirrors.
type Attacher interface {
	SetAttached(*bpf.Attached) (failed bpf.NotAttached, err error)
}

// Attached combines all policers and mirrors: a service, a prefix, a firewall rule or an interface
// has one row for both.
type Attached struct {
	desired *desired.State
	table   Attacher
	links   func() []netdev.Link

	mu            sync.Mutex
	policerPlaces map[uint64]int // number of places by key of a policer
	mirrorPlaces  map[uint64]int // number of places by key of a mirror
}

// NewAttached returns an Attached that writes to a table. links lists the present interfaces.
func NewAttached(s *desired.State, table Attacher, links func() []netdev.Link) *Attached {
	return &Attached{desired: s, table: table, links: links}
}

// apply writes the stored state to the data path. Its snapshot is taken under the lock: otherwise
// one loop could replace the newer state of the other.
func (a *Attached) apply() (failed bpf.NotAttached, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	snapshot := a.desired.Snapshot()
	all := &bpf.Attached{
		Policers: map[string]bpf.TcPolicer{}, Mirrors: map[string]bpf.TcMirror{}, Services: map[bpf.TcServiceKey]bpf.TcAttachments{},
		Sources: map[netip.Prefix]bpf.TcAttachments{}, Rules: map[uint64]bpf.TcAttachments{}, Ports: map[int]bpf.TcAttachments{},
	}
	a.policerPlaces, a.mirrorPlaces = map[uint64]int{}, map[uint64]int{}
	for p := range a.desired.Policers.All(snapshot) {
		all.Policers[p.Name] = compile.Policer(&p)
		key := bpf.NameKey(p.Name)
		a.policerPlaces[key] = a.attach(all, snapshot, p.Attachment, func(row *bpf.TcAttachments) *[2]uint64 { return &row.Policers }, key)
	}
	indices := map[string]int{}
	for _, l := range a.links() {
		indices[l.Name] = l.Index
	}
	for m := range a.desired.Mirrors.All(snapshot) {
		index := indices[mirrorPort(&m)]
		if index == 0 {
			continue // LinksChanged applies it once the interface exists
		}
		all.Mirrors[m.Name] = bpf.TcMirror{Ifindex: uint32(index), OneOf: m.OneOf, Vlan: uint32(m.VLAN)}
		key := bpf.NameKey(m.Name)
		a.mirrorPlaces[key] = a.attach(all, snapshot, m.Attachment, func(row *bpf.TcAttachments) *[2]uint64 { return &row.Mirrors }, key)
	}
	return a.table.SetAttached(all)
}

// mirrorPort returns the interface to which copies are sent.
func mirrorPort(m *policy.Mirror) string {
	if m.Tunneled() {
		return tapOf(m).Name()
	}
	return m.Port
}

// tapOf returns the tunnel of a mirror.
func tapOf(m *policy.Mirror) netdev.Tap {
	return netdev.Tap{ERSPAN: m.Type == policy.ERSPAN, Remote: m.Remote, Source: m.Source, ID: m.TunnelID}
}

// attach adds a key to all rows that match an attachment, and returns their number. An attachment
// to a service by its key takes precedence over one by its name.
func (a *Attached) attach(all *bpf.Attached, snapshot *store.Snapshot, at policy.Attachment, keys func(*bpf.TcAttachments) *[2]uint64, key uint64) (places int) {
	assign := func(row bpf.TcAttachments, override bool) bpf.TcAttachments {
		list := keys(&row)
		for i, back := range []bool{false, true} {
			if at.Direction.Has(back) && (override || list[i] == 0) {
				list[i] = key
			}
		}
		places++
		return row
	}
	switch at.To {
	case policy.AttachPort:
		for _, l := range a.links() {
			if l.Name == at.Name {
				all.Ports[l.Index] = assign(all.Ports[l.Index], true)
			}
		}
	case policy.AttachSource:
		if p, err := at.Prefix(); err == nil {
			all.Sources[p] = assign(all.Sources[p], true)
		}
	case policy.AttachRule:
		if rule, exists := a.desired.Rules.Get(snapshot, at.Name); exists {
			identity := compile.RuleIdentity(&rule)
			all.Rules[identity] = assign(all.Rules[identity], true)
		}
	case policy.AttachService:
		for _, k := range a.services(snapshot, at) {
			key := compile.Key(k)
			all.Services[key] = assign(all.Services[key], at.Name == k.String())
		}
	}
	return places
}

// services returns the keys of the services that an attachment names.
func (a *Attached) services(snapshot *store.Snapshot, at policy.Attachment) (keys []lb.Key) {
	name, key, err := at.Service()
	if err != nil {
		return nil
	}
	if name == "" {
		if _, exists := a.desired.Services.Get(snapshot, key); exists {
			keys = append(keys, key)
		}
		return keys
	}
	for _, s := range a.desired.Services.ByName(snapshot, name) {
		keys = append(keys, s.Key)
	}
	return keys
}

// PolicerPlaces returns the number of services, prefixes or interfaces that a policer is attached
// to.
func (a *Attached) PolicerPlaces(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.policerPlaces[bpf.NameKey(name)]
}

// MirrorPlaces returns the number of places of a mirror, 0 while there is no interface to send
// copies to.
func (a *Attached) MirrorPlaces(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mirrorPlaces[bpf.NameKey(name)]
}

// attachedLoop is the loop of a kind of objects that are attached to services, firewall rules and
// interfaces: it applies them again when those appear or disappear.
type attachedLoop[T any] struct {
	*objectLoop[T]
}

// allObjects is a key that makes a loop apply everything and remove leftovers of an earlier
// process. No object has it as a name.
const allObjects = ""

func newAttachedLoop[T any](w Worker[string], s *desired.State, table store.Table[T], o Observers) attachedLoop[T] {
	l := attachedLoop[T]{newObjectLoop(w, s, table, o)}
	l.applied = func() []string { return []string{allObjects} }
	l.affects = func(kind string) bool { return kind == kinds.ServiceName || kind == kinds.RuleName }
	l.markAffected = func(*store.Snapshot) { l.Mark(allObjects) }
	l.Loop.name = func(key string) string { return cmp.Or(key, "all") }
	return l
}

// LinksChanged reports that any interface may have changed.
func (l attachedLoop[T]) LinksChanged() { l.Mark(allObjects) }

// Policers keeps policers attached. A policer whose service or interface is missing counts as
// applied, not failed, and is attached when it appears.
type Policers struct {
	attachedLoop[policy.Policer]
	attached *Attached
}

// NewPolicers returns the loop of the policers.
func NewPolicers(s *desired.State, a *Attached, o Observers) *Policers {
	p := &Policers{attached: a}
	p.attachedLoop = newAttachedLoop(p, s, s.Policers, o)
	return p
}

// Apply applies all policers and mirrors, whatever the keys: unchanged rows are not written.
func (p *Policers) Apply(_ context.Context, keys []string) []Outcome[string] {
	snapshot := p.desired.Snapshot()
	failed, err := p.attached.apply()
	return p.applyEach(snapshot, keys, func(_ policy.Policer, _ bool, key string) error {
		return cmp.Or(failed.Policers[key], err)
	})
}

// Taps makes tunnels to collectors, and removes unused ones.
type Taps interface {
	MakeTap(netdev.Tap) error
	KeepTaps(wanted func(name string) bool) error
}

// Mirrors keeps mirrors attached, with the tunnels that they need: a removed tunnel is made again.
// A mirror whose service or interface is missing counts as applied, not failed, and is attached
// when it appears.
type Mirrors struct {
	attachedLoop[policy.Mirror]
	attached *Attached
	taps     Taps
}

// NewMirrors returns the loop of the mirrors.
func NewMirrors(s *desired.State, a *Attached, taps Taps, o Observers) *Mirrors {
	m := &Mirrors{attached: a, taps: taps}
	m.attachedLoop = newAttachedLoop(m, s, s.Mirrors, o)
	return m
}

// Apply applies all policers and mirrors, whatever the keys: unchanged rows are not written.
func (m *Mirrors) Apply(_ context.Context, keys []string) []Outcome[string] {
	snapshot := m.desired.Snapshot()
	wanted, tunnels := map[string]bool{}, map[string]error{}
	for one := range m.desired.Mirrors.All(snapshot) {
		if one.Tunneled() {
			wanted[tapOf(&one).Name()] = true
			tunnels[one.Name] = m.taps.MakeTap(tapOf(&one))
		}
	}
	failed, err := m.attached.apply()
	if err == nil {
		err = m.taps.KeepTaps(func(name string) bool { return wanted[name] })
	}
	return m.applyEach(snapshot, keys, func(_ policy.Mirror, _ bool, key string) error {
		return cmp.Or(tunnels[key], failed.Mirrors[key], err)
	})
}
