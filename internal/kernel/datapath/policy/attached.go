package policy

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/policy"
)

// Services finds the ids of services.
type Services interface {
	AttachToServices(map[bpf.TcServiceKey]bpf.TcAttachments) (changed bool, err error)
}

// Rules finds the counters of firewall rules.
type Rules interface {
	AttachToRules(map[uint64]bpf.TcAttachments) (changed bool, err error)
}

// Attached writes policers and mirrors, and attaches them to services, clients, firewall rules and
// interfaces. Methods are safe for concurrent use.
type Attached struct {
	maps     *bpf.TcMaps
	flows    *ebpf.Variable
	services Services
	rules    Rules
	renew    func() error // makes each connection look up its next hop

	mu       sync.Mutex
	ports    map[uint32]bpf.TcAttachments
	sources  map[bpf.TcAttachedSource]bpf.TcAttachments
	policers map[uint64]bpf.TcPolicer // as last set
	mirrors  map[uint64]bpf.TcMirror
	counted  []*ebpf.Variable  // variables that record whether ports have attachments
	stale    bool              // connections must still look up their next hops
	names    map[uint64]string // names of policers and mirrors, by key, as last set
	flowsSet uint32            // the value of the variable flows_attached
}

// OpenAttached reads the rows of an earlier process. They stay in force until SetAttached.
func OpenAttached(c *loader.Collection, services Services, rules Rules, renew func() error) (*Attached, error) {
	a := &Attached{
		maps: &c.Maps, flows: c.Variables.FlowsAttached, services: services, rules: rules, renew: renew,
		ports: map[uint32]bpf.TcAttachments{}, sources: map[bpf.TcAttachedSource]bpf.TcAttachments{}, policers: map[uint64]bpf.TcPolicer{}, mirrors: map[uint64]bpf.TcMirror{},
		counted: []*ebpf.Variable{c.Variables.PortsAttached},
	}
	if c.Fresh {
		return a, nil
	}
	attached := 0
	err := errors.Join(
		rows.Each(a.maps.AttachedPorts, func(k uint32, v bpf.TcAttachments) { a.ports[k] = v }),
		rows.Each(a.maps.AttachedSources, func(k bpf.TcAttachedSource, v bpf.TcAttachments) { a.sources[k] = v }),
		rows.Each(a.maps.AttachedServices, func(uint32, bpf.TcAttachments) { attached++ }),
		rows.Each(a.maps.Mirrors, func(k uint64, v bpf.TcMirror) { a.mirrors[k] = v }),
		rows.Each(a.maps.Policers, func(k uint64, _ bpf.TcPolicer) { a.policers[k] = bpf.TcPolicer{} }),
	)
	if err != nil {
		return nil, fmt.Errorf("read policers: %w", err)
	}
	return a, a.writeVariables(attached + len(a.sources))
}

// FollowPorts makes another object's variable ports_attached follow from now on.
func (a *Attached) FollowPorts(ports *ebpf.Variable) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counted = append(a.counted, ports)
	return ports.Set(uint32(len(a.ports)))
}

// SetAttached applies policers, mirrors and their attachments. It writes only differences; a
// policer whose rates change keeps the content of its buckets. A failed write is retried by the
// next call. failed has the keys that could not be written.
func (a *Attached) SetAttached(want *bpf.Attached) (failed bpf.NotAttached, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	failed = bpf.NotAttached{Policers: map[string]error{}, Mirrors: map[string]error{}}
	a.names = map[uint64]string{}
	for name, p := range want.Policers {
		a.names[bpf.NameKey(name)] = name
		if err := a.putPolicer(bpf.NameKey(name), p); err != nil {
			failed.Policers[name] = err
		}
	}
	for name, m := range want.Mirrors {
		a.names[bpf.NameKey(name)] = name
		if err := a.putMirror(bpf.NameKey(name), m); err != nil {
			failed.Mirrors[name] = err
		}
	}
	errs := []error{a.writeVariables(len(want.Services) + len(want.Sources))} // before the rows, so packets look for them
	services, err := a.services.AttachToServices(want.Services)
	rules, rulesErr := a.rules.AttachToRules(want.Rules)
	sources, ports := sourceRows(want.Sources), portRows(want.Ports)
	clients, clientsErr := put(a.maps.AttachedSources, a.sources, sources, "clients")
	_, portsErr := put(a.maps.AttachedPorts, a.ports, ports, "an interface")
	errs = append(errs, err, rulesErr, clientsErr, portsErr, a.writeVariables(len(want.Services)+len(a.sources)))
	if services || rules || clients {
		a.stale = true
	}
	if a.stale {
		err := a.renew()
		a.stale = err != nil
		errs = append(errs, err)
	}
	errs = append(errs, drop(a.policers, want.Policers, a.maps.Policers, a.maps.PolicedCounts), drop(a.mirrors, want.Mirrors, a.maps.Mirrors, a.maps.MirroredCounts))
	return failed, errors.Join(errs...)
}

// writeVariables sets whether packets look for attachments.
func (a *Attached) writeVariables(flows int) error {
	a.flowsSet = uint32(flows)
	errs := []error{a.flows.Set(a.flowsSet)}
	for _, v := range a.counted {
		errs = append(errs, v.Set(uint32(len(a.ports))))
	}
	return errors.Join(errs...)
}

func portRows(want map[int]bpf.TcAttachments) map[uint32]bpf.TcAttachments {
	out := map[uint32]bpf.TcAttachments{}
	for index, row := range want {
		out[uint32(index)] = row
	}
	return out
}

// put writes the rows of a map. It returns whether a row gained its first attachment or lost its
// last one.
func put[K comparable](m *ebpf.Map, have, want map[K]bpf.TcAttachments, to string) (changed bool, err error) {
	changed, err = rows.Sync(m, have, want)
	if errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("there is room for %d with policers or mirrors (%w)", m.MaxEntries(), err)
	}
	if err != nil {
		err = fmt.Errorf("attach policers and mirrors to %s: %w", to, err)
	}
	return changed, err
}

// putPolicer writes a policer, with the content of its buckets if it existed.
func (a *Attached) putPolicer(key uint64, want bpf.TcPolicer) error {
	if have, there := a.policers[key]; there && have == want {
		return nil
	}
	row, now := want, clock()
	row.Empty, row.PeakEmpty, row.Excess = now-want.Burst, now-want.ExcessBurst, int64(want.ExcessBurst)
	var old bpf.TcPolicer
	err := a.maps.Policers.Lookup(key, &old)
	switch {
	case err == nil && old.Flags == want.Flags:
		row.Empty, row.PeakEmpty, row.Excess = old.Empty, old.PeakEmpty, old.Excess
	case err != nil && !errors.Is(err, ebpf.ErrKeyNotExist):
		return fmt.Errorf("read policer: %w", err)
	}
	none := make([]bpf.TcPoliced, ebpf.MustPossibleCPU())
	if err := a.maps.PolicedCounts.Update(key, none, ebpf.UpdateNoExist); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("make counters of a policer: %w", err)
	}
	if err := a.maps.Policers.Put(key, row); err != nil {
		return fmt.Errorf("write policer: %w", err)
	}
	a.policers[key] = want
	return nil
}

// putMirror writes a mirror.
func (a *Attached) putMirror(key uint64, want bpf.TcMirror) error {
	if have, there := a.mirrors[key]; there && have == want {
		return nil
	}
	none := make([]bpf.TcMirrored, ebpf.MustPossibleCPU())
	if err := a.maps.MirroredCounts.Update(key, none, ebpf.UpdateNoExist); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("make counters of a mirror: %w", err)
	}
	if err := a.maps.Mirrors.Put(key, want); err != nil {
		return fmt.Errorf("write mirror: %w", err)
	}
	a.mirrors[key] = want
	return nil
}

// drop removes the rows of policers or mirrors that are not wanted. have keeps a row that could not
// be removed, so the next call retries it.
func drop[Row any](have map[uint64]Row, want map[string]Row, maps ...*ebpf.Map) error {
	kept := map[uint64]bool{}
	for name := range want {
		kept[bpf.NameKey(name)] = true
	}
	var errs []error
	for key := range have {
		if kept[key] {
			continue
		}
		var failed error
		for _, m := range maps {
			failed = errors.Join(failed, rows.Delete(m, key))
		}
		if failed != nil {
			errs = append(errs, fmt.Errorf("remove a policer or mirror: %w", failed))
			continue
		}
		delete(have, key)
	}
	return errors.Join(errs...)
}

// clock returns the time of the packet path's clock, in its ticks.
func clock() uint64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // this clock always exists
	return uint64(now.Nano()) << uint(bpf.TcPolicerLayoutTICK_SHIFT)
}

// Policed returns a policer's counts, which are zero if it does not exist.
func (a *Attached) Policed(name string) (sum policy.Policed, err error) {
	var each []bpf.TcPoliced
	if err := a.maps.PolicedCounts.Lookup(bpf.NameKey(name), &each); err != nil {
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return sum, nil
		}
		return sum, fmt.Errorf("read the counters of policer %s: %w", name, err)
	}
	for _, n := range each {
		for color := range n.Packets {
			sum.Packets[color] += n.Packets[color]
			sum.Bytes[color] += n.Bytes[color]
		}
	}
	return sum, nil
}

// Mirrored returns a mirror's counts, which are zero if it does not exist.
func (a *Attached) Mirrored(name string) (sum policy.MirrorStats, err error) {
	var each []bpf.TcMirrored
	if err := a.maps.MirroredCounts.Lookup(bpf.NameKey(name), &each); err != nil {
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return sum, nil
		}
		return sum, fmt.Errorf("read the counters of mirror %s: %w", name, err)
	}
	for _, n := range each {
		sum.Packets += n.Packets
		sum.Bytes += n.Bytes
		sum.Lost += n.Lost
	}
	return sum, nil
}
