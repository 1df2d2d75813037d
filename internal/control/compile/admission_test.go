package compile

import (
	"errors"
	"iter"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/lb"
)

// state is a snapshot in memory.
type state struct {
	byKey map[lb.Key]lb.Service
	byVIP map[netip.Addr][]lb.Key
}

func newState(list ...lb.Service) *state {
	s := &state{map[lb.Key]lb.Service{}, map[netip.Addr][]lb.Key{}}
	for _, service := range list {
		s.byKey[service.Key] = service
		for vip := range vipsOf(&service) {
			s.byVIP[vip] = append(s.byVIP[vip], service.Key)
		}
	}
	return s
}

// with returns a state with these services added or replaced, and the services with these keys
// deleted.
func (s *state) with(put []lb.Service, deleted ...lb.Key) *state {
	all := maps.Clone(s.byKey)
	for _, k := range deleted {
		delete(all, k)
	}
	for _, service := range put {
		all[service.Key] = service
	}
	return newState(slices.SortedFunc(maps.Values(all), func(a, b lb.Service) int { return a.Key.Compare(b.Key) })...)
}

func (s *state) HasVIP(a netip.Addr) bool { return len(s.byVIP[a]) > 0 }

func (s *state) Get(k lb.Key) (lb.Service, bool) {
	service, ok := s.byKey[k]
	return service, ok
}

func (s *state) All() iter.Seq[lb.Service] {
	return func(yield func(lb.Service) bool) {
		for _, k := range slices.SortedFunc(maps.Keys(s.byKey), lb.Key.Compare) {
			if !yield(s.byKey[k]) {
				return
			}
		}
	}
}

// Reach prefers single ports to ranges.
func (s *state) Reach(k lb.Key) (found lb.Service, ok bool) {
	for _, key := range s.byVIP[k.VIP] {
		if key.Protocol == k.Protocol && key.Port <= k.Port && max(key.Port, key.PortMax) >= max(k.Port, k.PortMax) && (!ok || key.PortMax == 0) {
			found, ok = s.byKey[key], true
		}
	}
	return found, ok
}

func parsed(t testing.TB, lines ...string) (list []lb.Service) {
	t.Helper()
	for _, line := range lines {
		s, err := lb.ParseService(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

// changes returns the keys whose services differ between two states.
func changes(before, after *state) (keys []lb.Key) {
	for k, s := range before.byKey {
		if now, ok := after.byKey[k]; !ok || !s.Equal(now) {
			keys = append(keys, k)
		}
	}
	for k := range after.byKey {
		if _, ok := before.byKey[k]; !ok {
			keys = append(keys, k)
		}
	}
	return keys
}

// TestLimits checks for each kind of row that services up to the limit are accepted and one more is
// refused, with a sentence that names the limit, its size and the largest services. A refused
// change has no effect, and shrinking is accepted.
func TestLimits(t *testing.T) {
	t.Parallel()
	many := func(n int, line string) (list []lb.Service) {
		model := parsed(t, line)[0]
		for i := range n {
			s := model
			s.VIP = vipAt(i)
			s.Secondary = slices.Clone(s.Secondary)
			for j := range s.Secondary {
				s.Secondary[j] = vipAt(1<<20 + 4*i + j)
			}
			list = append(list, s)
		}
		return list
	}
	one := func(line string) lb.Service { return parsed(t, line)[0] }
	wide := serviceAt(1<<22, endpointsAt(1, 4096)...)
	sources := one("172.16.0.1:80/tcp endpoints=1.1.1.1:1")
	for i := range 100000 {
		sources.Sources = append(sources.Sources, netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 16), byte(i >> 8), byte(i)}), 32))
	}
	fullnat := one("172.16.0.1:80/tcp mode=fullnat endpoints=1.1.1.1:1")
	for i := range lb.MaxSNAT {
		fullnat.SNAT = append(fullnat.SNAT, netip.AddrFrom4([4]byte{9, 9, 8, byte(i)}))
	}
	heavy := func(s lb.Service, n int) (list []lb.Service) {
		for i := range n {
			s.VIP = vipAt(1<<22 + i)
			list = append(list, s)
		}
		return list
	}
	for name, c := range map[string]struct {
		there []lb.Service
		more  lb.Service
		want  string
	}{
		"services": {
			many(65536, "10.0.0.1:80/tcp endpoints=1.1.1.1:1"), one("172.16.0.1:80/tcp endpoints=1.1.1.1:1"),
			"65537 services, one for each VIP, are more than the data path has room for (allowed: 65536; now: 65536; most: 10.0.0.0:80/tcp 1, 10.0.0.1:80/tcp 1, 10.0.0.2:80/tcp 1)",
		},
		"additional VIPs": {
			many(16384, "10.0.0.1:80/tcp secips=10.0.0.2,10.0.0.3,10.0.0.4 endpoints=1.1.1.1:1"), one("172.16.0.1:80/tcp endpoints=1.1.1.1:1"),
			"65537 services, one for each VIP, are more than the data path has room for (allowed: 65536; now: 65536; most: 10.0.0.0:80/tcp 4, 10.0.0.1:80/tcp 4, 10.0.0.2:80/tcp 4)",
		},
		"endpoints": {
			heavy(wide, 64), one("172.16.0.1:80/tcp endpoints=1.1.1.1:1"),
			"262145 endpoints, including those behind other services, are more than the data path has room for (allowed: 262144; now: 262144; most: " +
				"10.64.0.0:80/tcp 4096, 10.64.0.1:80/tcp 4096, 10.64.0.2:80/tcp 4096)",
		},
		"slots": {
			many(8193, "10.0.0.1:80/tcp select=hash endpoints=1.1.1.1:1:1,1.1.1.2:1:1000"), one("172.16.0.1:80/tcp select=hash endpoints=1.1.1.1:1:1,1.1.1.2:1:1000"),
			"134225914 slots in the tables that choose endpoints are more than the data path has room for (allowed: 134217728; now: 134209533; most: " +
				"10.0.0.0:80/tcp 16381, 10.0.0.1:80/tcp 16381, 10.0.0.2:80/tcp 16381)",
		},
		"sources": {
			append(heavy(sources, 10), one("10.0.0.1:80/tcp sources=20.0.0.0/32 endpoints=1.1.1.1:1")), sources,
			"1100001 prefixes of sources are more than the data path has room for (allowed: 1048576; now: 1000001; most: 10.64.0.0:80/tcp 100000, " +
				"10.64.0.1:80/tcp 100000, 10.64.0.2:80/tcp 100000)",
		},
		"ranges": {
			many(34952, "10.0.0.1:1-65534/tcp endpoints=1.1.1.1:1"), one("172.16.0.1:1-65534/tcp endpoints=1.1.1.1:1"),
			"1048590 prefixes that ranges of ports are made of are more than the data path has room for (allowed: 1048576; now: 1048560; most: " +
				"10.0.0.0:1-65534/tcp 30, 10.0.0.1:1-65534/tcp 30, 10.0.0.2:1-65534/tcp 30)",
		},
		"SNAT": {
			heavy(fullnat, 1024), one("172.16.0.1:80/tcp mode=fullnat snat=9.9.9.9 endpoints=1.1.1.1:1"),
			"65537 source addresses of services are more than the data path has room for (allowed: 65536; now: 65536; most: 10.64.0.0:80/tcp 64, 10.64.0.1:80/tcp 64, 10.64.0.2:80/tcp 64)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, empty := NewAdmission(), newState()
			full := empty.with(c.there)
			if err := a.Check(empty, full, changes(empty, full)); err != nil {
				t.Fatalf("services within the limit are refused: %v", err)
			}
			over := full.with([]lb.Service{c.more})
			err := a.Check(full, over, []lb.Key{c.more.Key})
			var limit *LimitError
			if !errors.As(err, &limit) || err.Error() != c.want {
				t.Errorf("%v, want\n%s", err, c.want)
			}
			less := full.with(nil, c.there[0].Key)
			if err := a.Check(full, less, []lb.Key{c.there[0].Key}); err != nil {
				t.Errorf("deleting one: %v", err)
			}
			// a file may exceed the limit, and can be reduced step by step
			if n := len(a.Load(over)); n != 1 {
				t.Errorf("%d limits, want 1", n)
			}
			named := c.more
			named.Name = "x"
			same := over.with([]lb.Service{named})
			if err := a.Check(over, same, []lb.Key{named.Key}); err != nil {
				t.Errorf("a name: %v", err)
			}
			if err := a.Check(same, full, []lb.Key{named.Key}); err != nil {
				t.Errorf("deleting services beyond the limit: %v", err)
			}
		})
	}
}

// TestGrowthOfInnerService checks that the growth of a service counts for the services that have it
// as an endpoint.
func TestGrowthOfInnerService(t *testing.T) {
	t.Parallel()
	inner := serviceAt(0, endpointsAt(0, 1024)...)
	list := []lb.Service{inner}
	for i := range 255 {
		list = append(list, serviceAt(i+1, serviceEndpoint(0)))
	}
	a, empty := NewAdmission(), newState()
	full := empty.with(list)
	if err := a.Check(empty, full, changes(empty, full)); err != nil {
		t.Fatal(err) // 256 times 1,024 endpoints
	}
	inner.Endpoints = endpointsAt(0, 1025)
	over := full.with([]lb.Service{inner})
	const want = "262400 endpoints, including those behind other services, are more than the data path has room for " +
		"(allowed: 262144; now: 262144; most: 10.0.0.0:80/tcp 1025, 10.0.0.1:80/tcp 1025, 10.0.0.2:80/tcp 1025)"
	if err := a.Check(full, over, []lb.Key{inner.Key}); err == nil || err.Error() != want {
		t.Errorf("%v, want\n%s", err, want)
	}
	inner.Endpoints = endpointsAt(0, 1023)
	less := full.with([]lb.Service{inner})
	if err := a.Check(full, less, []lb.Key{inner.Key}); err != nil {
		t.Error(err)
	}
	if got := a.total.Endpoints; got != 256*1023 {
		t.Errorf("%d endpoints", got)
	}
}

// TestLoops checks that a change that creates a loop is refused, and that a change that only keeps
// an existing loop is not.
func TestLoops(t *testing.T) {
	t.Parallel()
	const loop = " lead back to the service itself through other services (allowed: endpoints that do not)"
	for name, c := range map[string]struct {
		there, put, deleted []string
		want                string
	}{
		"by its own endpoint": {
			[]string{"10.0.0.1:80/tcp endpoints=10.0.0.2:80"}, []string{"10.0.0.2:80/tcp endpoints=10.0.0.1:80"}, nil,
			`endpoints "10.0.0.2:80/tcp"` + loop,
		},
		"by deleting a service that precedes a range": {
			[]string{"10.0.0.1:80/tcp endpoints=10.0.0.2:85", "10.0.0.2:85/tcp endpoints=1.1.1.1:1", "10.0.0.2:80-90/tcp endpoints=10.0.0.1:80"},
			nil, []string{"10.0.0.2:85/tcp"}, `endpoints "10.0.0.1:80/tcp"` + loop,
		},
		"by an additional VIP": {
			[]string{"10.0.0.1:80/tcp endpoints=10.0.0.2:80", "10.0.0.3:80/tcp endpoints=10.0.0.1:80"},
			[]string{"10.0.0.3:80/tcp secips=10.0.0.2 endpoints=10.0.0.1:80"}, nil, `endpoints "10.0.0.3:80/tcp"` + loop,
		},
		"reversed in one change": {
			[]string{"10.0.0.1:80/tcp endpoints=10.0.0.2:80", "10.0.0.2:80/tcp endpoints=1.1.1.1:1"},
			[]string{"10.0.0.1:80/tcp endpoints=1.1.1.1:1", "10.0.0.2:80/tcp endpoints=10.0.0.1:80"}, nil, "",
		},
		"another loop exists already": {
			[]string{"10.0.0.1:80/tcp endpoints=10.0.0.2:80,10.0.0.3:80", "10.0.0.2:80/tcp endpoints=10.0.0.1:80", "10.0.0.3:80/tcp endpoints=1.1.1.1:1"},
			[]string{"10.0.0.3:80/tcp endpoints=1.1.1.2:1"}, nil, "",
		},
		"broken": {
			[]string{"10.0.0.1:80/tcp endpoints=10.0.0.2:80", "10.0.0.2:80/tcp endpoints=10.0.0.1:80"},
			nil, []string{"10.0.0.1:80/tcp"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := newState(parsed(t, c.there...)...)
			var deleted []lb.Key
			for _, s := range c.deleted {
				k, err := lb.ParseKey(s)
				if err != nil {
					t.Fatal(err)
				}
				deleted = append(deleted, k)
			}
			after := before.with(parsed(t, c.put...), deleted...)
			got := ""
			if err := NewAdmission().Check(before, after, changes(before, after)); err != nil {
				got = err.Error()
			}
			// the error may name either service of a loop
			if got != c.want && (c.want == "" || !strings.HasSuffix(got, loop)) {
				t.Errorf("the error is %q, want %q", got, c.want)
			}
		})
	}
}

// TestAdmissionKeepsCount checks that after any changes, including refused ones, the cached counts
// equal those of a full recount.
func TestAdmissionKeepsCount(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	random := func() lb.Service {
		s := serviceAt(rng.IntN(12))
		s.Algorithm = []lb.Algorithm{lb.RoundRobin, lb.Hash, lb.Priority}[rng.IntN(3)]
		if rng.IntN(3) == 0 {
			s.PortMax = 80 + uint16(rng.IntN(20)) + 1
		}
		if rng.IntN(4) == 0 {
			s.Secondary = []netip.Addr{vipAt(12 + rng.IntN(6))}
		}
		for range 1 + rng.IntN(3) {
			e := serviceEndpoint(rng.IntN(24))
			e.Port += uint16(rng.IntN(3))
			e.Weight = uint16(1 + rng.IntN(5))
			s.Endpoints = append(s.Endpoints, e)
		}
		return s
	}
	a, now := NewAdmission(), newState()
	refused, accepted := 0, 0
	for range 3000 {
		var put []lb.Service
		for range rng.IntN(3) {
			put = append(put, random())
		}
		var deleted []lb.Key
		for k := range now.byKey {
			if rng.IntN(8) == 0 {
				deleted = append(deleted, k)
			}
		}
		next := now.with(put, deleted...)
		if err := a.Check(now, next, changes(now, next)); err != nil {
			refused++
			continue
		}
		accepted++
		now = next
		fresh := NewAdmission()
		fresh.Load(now)
		if diff := cmp.Diff(fresh.total, a.total); diff != "" {
			t.Fatalf("-want +got\n%s", diff)
		}
		if !reflect.DeepEqual(fresh.vipUsers, a.vipUsers) {
			t.Fatalf("users of VIPs: want %v, got %v", fresh.vipUsers, a.vipUsers)
		}
	}
	if refused < 100 || accepted < 100 {
		t.Errorf("%d changes refused and %d accepted, which is too few for this test", refused, accepted)
	}
}

// TestAdmissionCost checks that the cost of checking a change does not depend on the number of
// other services.
func TestAdmissionCost(t *testing.T) {
	t.Parallel()
	lookups := func(others int) int {
		var list []lb.Service
		for i := range others {
			list = append(list, serviceAt(i, endpointsAt(i%200, 3)...))
		}
		before := newState(list...)
		one := serviceAt(lb.MaxServices, endpointsAt(1, 3)...)
		after := before.with([]lb.Service{one})
		a := NewAdmission()
		a.Load(before)
		counting := &countingSnapshot{Snapshot: after}
		if err := a.Check(before, counting, []lb.Key{one.Key}); err != nil {
			t.Fatal(err)
		}
		return counting.n
	}
	if few, many := lookups(10), lookups(5000); many > few {
		t.Errorf("%d lookups with 5,000 services, %d with 10", many, few)
	}
}

// countingSnapshot counts its calls.
type countingSnapshot struct {
	Snapshot
	n int
}

func (c *countingSnapshot) HasVIP(a netip.Addr) bool          { c.n++; return c.Snapshot.HasVIP(a) }
func (c *countingSnapshot) Reach(k lb.Key) (lb.Service, bool) { c.n++; return c.Snapshot.Reach(k) }
func (c *countingSnapshot) Get(k lb.Key) (lb.Service, bool)   { c.n++; return c.Snapshot.Get(k) }
func (c *countingSnapshot) All() iter.Seq[lb.Service] { // counts each service
	return func(yield func(lb.Service) bool) {
		for s := range c.Snapshot.All() {
			c.n++
			if !yield(s) {
				return
			}
		}
	}
}

// TestCostOf checks that a service's cost in slots equals the size of its table.
func TestCostOf(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, algorithm := range []lb.Algorithm{lb.RoundRobin, lb.Hash, lb.Priority, lb.Persist, lb.LeastConnections, lb.Random} {
		for range 60 {
			s := serviceAt(1, endpointsAt(1, 1+rng.IntN(100))...)
			s.Algorithm = algorithm
			s.SlowStart = time.Duration(rng.IntN(2)) * time.Minute
			for i := range s.Endpoints {
				s.Endpoints[i].Weight = uint16(rng.IntN(1 + rng.IntN(2000)))
			}
			table := Service(s, nil, 1, nil)
			slow := s.SlowStart > 0
			if got, want := CostOf(&s).Slots, len(table.Slots); got < want || got != want && !slow {
				t.Errorf("%v: %d slots, want %d", s, got, want)
			}
			if table.Tenths != slow {
				t.Errorf("%v: weights are in tenths: %v", s, table.Tenths)
			}
		}
	}
}
