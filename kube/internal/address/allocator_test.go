package address

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
)

func mustRange(t *testing.T, text string) Range {
	t.Helper()
	r, err := ParseRange(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func addrs(words ...string) (list []netip.Addr) {
	for _, w := range words {
		list = append(list, netip.MustParseAddr(w))
	}
	return list
}

// web is a request of a service for an IPv4 address and port 80.
func web(service string) *Request {
	return &Request{Service: service, Ports: []Port{{"TCP", 80}}, Slots: []Slot{{}}}
}

func want(t *testing.T, a *Allocator, r *Request, current []netip.Addr, want string) {
	t.Helper()
	got, _, err := a.Allocate(r, current)
	text := strings.Trim(fmt.Sprint(got), "[]")
	if err != nil {
		text = err.Error()
	}
	if text != want {
		t.Errorf("%s gets %s, want %s", r.Service, text, want)
	}
}

// TestRanges checks the first and last address of ranges, and which texts are refused.
func TestRanges(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"192.0.2.0/24": "192.0.2.1-192.0.2.254", "192.0.2.4/31": "192.0.2.4-192.0.2.5", "192.0.2.9": "192.0.2.9-192.0.2.9",
		"192.0.2.1 - 192.0.2.3": "192.0.2.1-192.0.2.3", "2001:db8::/126": "2001:db8::1-2001:db8::3", "2001:db8::/127": "2001:db8::-2001:db8::1", "192.0.2.1/24": "192.0.2.1-192.0.2.254",
	} {
		if r, err := ParseRange(text); err != nil || r.First.String()+"-"+r.Last.String() != want {
			t.Errorf("%s: %v, %v, want %s", text, r, err, want)
		}
	}
	for _, text := range []string{
		"", "x", "192.0.2.0/33", "192.0.2.9-192.0.2.1", "192.0.2.1-2001:db8::1", "127.0.0.0/8", "224.0.0.1", "fe80::/64",
		"0.0.0.0/0", "::ffff:1.2.3.4/120", "fe80::1%eth0",
	} {
		if _, err := ParseRange(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	if n := mustRange(t, "2001:db8::/32").size(); n != math.MaxInt64 {
		t.Errorf("an IPv6 network has %d addresses", n)
	}
}

// TestAllocation checks which pool, and which of its addresses, services get.
func TestAllocation(t *testing.T) {
	t.Parallel()
	a := New()
	want(t, a, web("d/a"), nil, "no pool has IPv4 addresses for this service")
	a.SetPools([]Pool{
		{Name: "low", Auto: true, Ranges: []Range{mustRange(t, "10.0.0.1-10.0.0.2"), mustRange(t, "2001:db8::/64")}, Sharing: ShareByKey},
		{Name: "high", Auto: true, Ranges: []Range{mustRange(t, "10.1.0.1-10.1.0.1")}, Sharing: ShareNever, Priority: 1},
		{Name: "named", Ranges: []Range{mustRange(t, "10.2.0.0/24")}, Sharing: ShareAlways},
		{Name: "gold", Auto: true, Ranges: []Range{mustRange(t, "10.3.0.0/24")}, Selector: labels.SelectorFromSet(labels.Set{"tier": "gold"}), Priority: 2},
	})
	want(t, a, web("d/a"), nil, "10.1.0.1")
	want(t, a, web("d/b"), nil, "10.0.0.1")
	want(t, a, web("d/b"), nil, "10.0.0.1") // again
	want(t, a, web("d/c"), addrs("10.0.0.2"), "10.0.0.2")
	want(t, a, web("d/d"), nil, `no IPv4 address is free in pools ["high" "low"]`)
	gold := web("d/gold")
	gold.Labels = map[string]string{"tier": "gold"}
	want(t, a, gold, nil, "10.3.0.1")
	if !a.Release("d/b") || a.Release("d/b") {
		t.Error("a release does not report the change")
	}
	want(t, a, web("d/d"), nil, "10.0.0.1")

	named := web("d/n")
	named.Slots[0].Pool = "named"
	want(t, a, named, nil, "10.2.0.1")
	named.Slots[0].Pool = "other"
	want(t, a, named, nil, `pool "other" does not exist`)
	if got := a.Of("d/n"); !slices.Equal(got, addrs("10.2.0.1")) {
		t.Errorf("a service whose request fails has %v", got)
	}
	static := web("d/static")
	static.Slots[0].Address = netip.MustParseAddr("10.2.0.1")
	want(t, a, static, nil, "port 80/TCP of address 10.2.0.1 belongs to service d/n")
	static.Ports[0].Number = 81
	want(t, a, static, nil, "10.2.0.1")
	static.Slots[0].Address = netip.MustParseAddr("10.1.0.1")
	want(t, a, static, nil, "address 10.1.0.1 belongs to service d/a, and they have no common sharing key")
	static.Slots[0].Address = netip.MustParseAddr("172.16.0.1") // of no pool
	want(t, a, static, nil, "172.16.0.1")
	if u := a.Usage("low"); u.IPv4 != (Usage{2, 2}) || u.Services != 2 || u.IPv6.Total != math.MaxInt64 {
		t.Errorf("the usage of low is %+v", u)
	}
}

// TestDualStack checks that a missing optional family is skipped, and added when a pool has it.
func TestDualStack(t *testing.T) {
	t.Parallel()
	a := New()
	pool := Pool{Name: "p", Auto: true, Ranges: []Range{mustRange(t, "10.0.0.0/30")}}
	a.SetPools([]Pool{pool})
	r := web("d/a")
	r.Slots = append(r.Slots, Slot{IPv6: true, Optional: true})
	got, skipped, err := a.Allocate(r, nil)
	if err != nil || skipped == nil || len(got) != 1 {
		t.Errorf("got %v, skipped %v: %v", got, skipped, err)
	}
	pool.Ranges = append(pool.Ranges, mustRange(t, "2001:db8::10-2001:db8::20"))
	a.SetPools([]Pool{pool})
	want(t, a, r, nil, "10.0.0.1 2001:db8::10")
	r.Slots[1].Optional = false
	r2 := web("d/b")
	r2.Slots = []Slot{{}, {Secondary: true}}
	want(t, a, r2, nil, `no IPv4 address is free in pool "p"`)
	if got := a.Of("d/b"); len(got) > 0 {
		t.Errorf("a failed request leaves %v", got)
	}
}

// TestSharing checks that services with the same key share an address of a pool that allows it.
func TestSharing(t *testing.T) {
	t.Parallel()
	a := New()
	a.SetPools([]Pool{{Name: "p", Auto: true, Ranges: []Range{mustRange(t, "10.0.0.0/24")}, Sharing: ShareByKey}})
	for i, key := range []string{"k", "k", "other", ""} {
		r := web(fmt.Sprint("d/", i))
		r.Ports[0].Number, r.Key = int32(80+i), key
		want(t, a, r, nil, []string{"10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"}[i])
	}
	// A port of another service is refused, and the service keeps its former state.
	r := web("d/1")
	r.Key = "k"
	want(t, a, r, nil, "port 80/TCP of address 10.0.0.1 belongs to service d/0")
	r2 := web("d/9")
	r2.Key, r2.Ports[0].Number = "k", 81
	want(t, a, r2, addrs("10.0.0.1"), "port 81/TCP of address 10.0.0.1 belongs to service d/1")
}

// TestNotShared checks that a key does not make services share addresses of a pool without sharing.
func TestNotShared(t *testing.T) {
	t.Parallel()
	a := New()
	a.SetPools([]Pool{{Name: "p", Auto: true, Ranges: []Range{mustRange(t, "10.0.0.0/24")}, Sharing: ShareNever}})
	for i, address := range []string{"10.0.0.1", "10.0.0.2"} {
		r := web(fmt.Sprint("d/", i))
		r.Ports[0].Number, r.Key = int32(80+i), "k"
		want(t, a, r, nil, address)
	}
}

// TestNoPool checks the reasons why no pool has an address for a service.
func TestNoPool(t *testing.T) {
	t.Parallel()
	a := New()
	a.SetPools([]Pool{{Name: "p", Ranges: []Range{mustRange(t, "10.0.0.0/24")}}, {Name: "q", Ranges: []Range{mustRange(t, "10.0.1.0/24")}}, {Problem: "a LoxiURL with an error"}})
	for _, tc := range []struct {
		slot Slot
		want string
	}{
		{Slot{Pool: "p", IPv6: true}, `pool "p" has no IPv6 addresses for this service`},
		{Slot{Pool: "r"}, `pool "r" does not exist`},
		{Slot{}, "no pool has IPv4 addresses for this service"},
		{Slot{Pool: "q"}, "10.0.1.1"},
	} {
		r := web("d/a")
		r.Slots = []Slot{tc.slot}
		want(t, a, r, nil, tc.want)
	}
}

// TestOverlap checks which pools overlap.
func TestOverlap(t *testing.T) {
	t.Parallel()
	first := Pool{Name: "a", Ranges: []Range{mustRange(t, "10.0.0.0/24")}}
	second := Pool{Name: "b", Ranges: []Range{mustRange(t, "10.0.1.0/24"), mustRange(t, "10.0.0.254")}}
	if why := second.Overlap([]Pool{first}); !strings.Contains(why, `pool "a"`) {
		t.Errorf("got problem %q, want one that names pool a", why)
	}
	first.Problem = "not used"
	if why := second.Overlap([]Pool{first}); why != "" {
		t.Errorf("got problem %q next to an unused pool, want none", why)
	}
	second.Ranges = append(second.Ranges, mustRange(t, "10.0.1.7"))
	if second.Overlap(nil) == "" {
		t.Error("a range inside of another one is accepted")
	}
}

// TestPoolsChange checks that services keep addresses which their pool no longer has, with a
// notice, also after a restart. A service that selects another pool moves.
func TestPoolsChange(t *testing.T) {
	t.Parallel()
	whole := []Pool{{Name: "p", Ranges: []Range{mustRange(t, "10.0.0.0/24")}}, {Name: "q", Auto: true, Ranges: []Range{mustRange(t, "10.1.0.0/24")}}}
	for what, pools := range map[string][]Pool{
		"shrunk":   {{Name: "p", Ranges: []Range{mustRange(t, "10.0.0.2-10.0.0.9")}}, whole[1]},
		"split":    {{Name: "p", Ranges: []Range{mustRange(t, "10.0.0.2-10.0.0.9")}}, whole[1], {Name: "r", Ranges: []Range{mustRange(t, "10.0.0.1")}}},
		"deleted":  {whole[1]},
		"conflict": {{Name: "p", Ranges: whole[0].Ranges, Problem: "overlaps"}, whole[1]},
	} {
		a := New()
		a.SetPools(whole)
		r := web("d/a")
		r.Slots[0].Pool = "p"
		want(t, a, r, nil, "10.0.0.1")
		for _, restart := range []bool{false, true} {
			if restart {
				a = New()
			}
			a.SetPools(pools)
			if restart {
				a.Adopt(web("d/a"), addrs("10.0.0.1"))
			}
			for range 2 {
				want(t, a, r, addrs("10.0.0.1"), "10.0.0.1")
			}
			_, notice, _ := a.Allocate(r, nil)
			if notice == nil || notice.Reason != ReasonOutside {
				t.Errorf("%s, restart: %v: the notice is %v", what, restart, notice)
			}
		}
		a = New()
		a.SetPools(pools)
		a.Adopt(web("d/a"), addrs("10.0.0.1"))
		r.Slots[0].Pool = "q"
		want(t, a, r, nil, "10.0.0.1") // the pool that it selected before is unknown
		a = New()
		a.SetPools(whole)
		r.Slots[0].Pool = "p"
		want(t, a, r, nil, "10.0.0.1")
		a.SetPools(pools)
		r.Slots[0].Pool = "q"
		want(t, a, r, nil, "10.1.0.1")
		if _, notice, _ := a.Allocate(r, nil); notice != nil {
			t.Errorf("%s: in its pool, the notice is %v", what, notice)
		}
	}
}

// TestReserved checks that nodes and pods keep their addresses.
func TestReserved(t *testing.T) {
	t.Parallel()
	a := New()
	a.SetPools([]Pool{{Name: "p", Auto: true, Ranges: []Range{mustRange(t, "10.0.0.0/24"), mustRange(t, "2001:db8::/32")}}})
	a.SetReserved(Reserved{
		Addresses: map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): "node n1", netip.MustParseAddr("10.0.0.3"): "node n1", netip.MustParseAddr("10.0.0.70"): "node n2"},
		Prefixes:  map[netip.Prefix]string{netip.MustParsePrefix("2001:db8::/48"): "the pods of node n1", netip.MustParsePrefix("10.0.0.64/26"): "the pods of node n2"},
	})
	r := web("d/a")
	r.Slots = append(r.Slots, Slot{IPv6: true})
	want(t, a, r, nil, "10.0.0.2 2001:db8:1::")
	want(t, a, web("d/b"), nil, "10.0.0.4")
	if u := a.Usage("p"); u.IPv4 != (Usage{254 - 2 - 64, 2}) {
		t.Errorf("the usage is %+v", u)
	}
	for text, why := range map[string]string{
		"10.0.0.3": "address 10.0.0.3 belongs to node n1", "10.0.0.70": "address 10.0.0.70 belongs to node n2", "10.0.0.71": "address 10.0.0.71 belongs to the pods of node n2",
		"127.0.0.1":   "address 127.0.0.1 is in 127.0.0.0/8, which no service can have",
		"169.254.1.1": "address 169.254.1.1 is in 169.254.0.0/16, which no service can have",
		"224.0.0.5":   "address 224.0.0.5 is in 224.0.0.0/3, which no service can have", "255.255.255.255": "address 255.255.255.255 is in 224.0.0.0/3, which no service can have",
		"0.0.0.0": "address 0.0.0.0 is in 0.0.0.0/8, which no service can have",
	} {
		static := web("d/static")
		static.Slots[0].Address = netip.MustParseAddr(text)
		want(t, a, static, nil, why)
	}
	// A service keeps an address that a later node has, too.
	a.SetReserved(Reserved{Addresses: map[netip.Addr]string{netip.MustParseAddr("10.0.0.4"): "node n3"}})
	want(t, a, web("d/b"), nil, "10.0.0.4")
	static := web("d/b")
	static.Slots[0].Address = netip.MustParseAddr("10.0.0.4")
	want(t, a, static, nil, "10.0.0.4")
	if u := a.Usage("p"); u.IPv4 != (Usage{254, 2}) {
		t.Errorf("the usage is %+v", u)
	}
}

// TestOneOwner makes random requests, restarts and changes of pools. No port of an address ever has
// two owners; failed requests and restarts change nothing; a service with an unchanged request
// keeps its addresses; and released addresses can be used again.
func TestOneOwner(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 27))
		pools := []Pool{
			{Name: "never", Auto: true, Ranges: []Range{mustRange(t, "10.0.0.1-10.0.0.5"), mustRange(t, "2001:db8::1-2001:db8::4")}, Sharing: ShareNever},
			{Name: "key", Auto: true, Ranges: []Range{mustRange(t, "10.1.0.1-10.1.0.3")}, Sharing: ShareByKey},
			{Name: "always", Auto: r.IntN(2) == 0, Ranges: []Range{mustRange(t, "10.2.0.1-10.2.0.2")}, Sharing: ShareAlways},
		}
		a := New()
		a.SetPools(pools)
		model := map[string]*Request{}     // accepted requests
		given := map[string][]netip.Addr{} // and their addresses
		for step := range 400 {
			name := fmt.Sprint("d/", r.IntN(20))
			switch r.IntN(12) {
			case 0, 1:
				a.Release(name)
				delete(model, name)
				delete(given, name)
			case 2: // a restart: only statuses and requests survive
				a = New()
				a.SetPools(pools)
				for service := range maps.Keys(model) {
					a.Adopt(model[service], given[service])
				}
			case 3: // the address of every other service is outside of its pool
				changed := slices.Clone(pools)
				changed[r.IntN(3)] = Pool{Name: fmt.Sprint(step), Auto: true, Ranges: []Range{mustRange(t, "10.9.0.0/24")}}
				a.SetPools(changed)
				for service := range maps.Keys(model) {
					got, _, err := a.Allocate(model[service], given[service])
					if err == nil && len(got) > len(given[service]) && slices.Equal(got[:len(given[service])], given[service]) {
						given[service] = got // an optional address that was missing
					} else if err == nil && !slices.Equal(got, given[service]) {
						t.Fatalf("seed %d, step %d: %s had %v and has %v", seed, step, service, given[service], got)
					}
				}
				a.SetPools(pools)
			default:
				req := randomRequest(r, name)
				got, _, err := a.Allocate(req, given[name])
				if err == nil {
					model[name], given[name] = req, got
				} else if e := (*Error)(nil); !errors.As(err, &e) || e.Reason == "" {
					t.Fatalf("the error has no reason: %v", err)
				}
			}
			checkOwners(t, seed, step, a, model, given)
		}
	}
}

func randomRequest(r *rand.Rand, name string) *Request {
	req := &Request{Service: name, Key: []string{"", "k", "l"}[r.IntN(3)]}
	for range 1 + r.IntN(3) {
		p := Port{[]string{"TCP", "UDP"}[r.IntN(2)], int32(80 + r.IntN(4))}
		if !slices.Contains(req.Ports, p) {
			req.Ports = append(req.Ports, p)
		}
	}
	req.Slots = []Slot{{Pool: []string{"", "", "key", "always", "missing"}[r.IntN(5)]}}
	if r.IntN(3) == 0 {
		req.Slots = append(req.Slots, Slot{IPv6: true, Optional: r.IntN(2) == 0})
	}
	if r.IntN(4) == 0 {
		req.Slots[0].Address = netip.MustParseAddr([]string{"10.0.0.1", "10.1.0.2", "10.2.0.1", "172.16.0.1"}[r.IntN(4)])
	}
	return req
}

func checkOwners(t *testing.T, seed uint64, step int, a *Allocator, model map[string]*Request, given map[string][]netip.Addr) {
	t.Helper()
	owners := map[string]string{}
	for service, req := range model {
		if got := a.Of(service); !slices.Equal(got, given[service]) {
			t.Fatalf("seed %d, step %d: %s has %v, and was given %v", seed, step, service, got, given[service])
		}
		for _, c := range given[service] {
			for _, p := range req.Ports {
				key := fmt.Sprint(c, p)
				if other, taken := owners[key]; taken {
					t.Fatalf("seed %d, step %d: %s belongs to %s and %s", seed, step, key, other, service)
				}
				owners[key] = service
			}
		}
	}
	claims := 0
	for _, u := range a.used {
		claims += len(u.claims)
	}
	want := 0
	for _, list := range given {
		want += len(list)
	}
	if claims != want {
		t.Fatalf("seed %d, step %d: there are %d claims, want %d", seed, step, claims, want)
	}
}

// TestPoolsOfOthers checks that a service cannot request an address of a pool for other services,
// unless it has the address already.
func TestPoolsOfOthers(t *testing.T) {
	t.Parallel()
	a := New()
	for what, pool := range map[string]Pool{
		"namespace": {Name: "theirs", Namespaces: []string{"their"}},
		"labels":    {Name: "theirs", Selector: labels.SelectorFromSet(labels.Set{"tier": "gold"})},
	} {
		pool.Ranges = []Range{mustRange(t, "10.0.0.0/24")}
		a.SetPools([]Pool{pool})
		r := web("d/" + what)
		r.Namespace, r.Slots[0].Address = "d", netip.MustParseAddr("10.0.0.7")
		want(t, a, r, nil, `address 10.0.0.7 is of pool "theirs", which is not for this service`)
		want(t, a, r, addrs("10.0.0.7"), "10.0.0.7")
		a.Release(r.Service)
		r.Namespace, r.Labels = "their", map[string]string{"tier": "gold"}
		want(t, a, r, nil, "10.0.0.7")
		a.Release(r.Service)
	}
}

// TestSameReason checks that a conflict with several services always names the same one: otherwise
// each status that the controller writes would wake it for the next one.
func TestSameReason(t *testing.T) {
	t.Parallel()
	a := New()
	a.SetPools([]Pool{{Name: "p", Auto: true, Sharing: ShareByKey, Ranges: []Range{mustRange(t, "10.0.0.0/24")}}})
	for i := range 8 {
		r := web(fmt.Sprint("d/", 8-i))
		r.Ports[0].Number, r.Key = int32(8000+i), "k"
		want(t, a, r, nil, "10.0.0.1")
	}
	r := web("d/late")
	r.Slots[0].Address = netip.MustParseAddr("10.0.0.1")
	for range 20 {
		want(t, a, r, nil, "address 10.0.0.1 belongs to service d/1, and they have no common sharing key")
		r.Exclusive = true
		want(t, a, r, nil, "address 10.0.0.1 belongs to service d/1: by BGP only nodes with pods announce addresses of Services with the policy Local, so they cannot be shared")
		r.Exclusive = false
	}
}

// TestBecomesExclusive checks that a service which shares its address, and becomes exclusive, keeps
// it with a notice, like the other service.
func TestBecomesExclusive(t *testing.T) {
	t.Parallel()
	a := New()
	a.SetPools([]Pool{{Name: "p", Auto: true, Sharing: ShareAlways, Ranges: []Range{mustRange(t, "10.0.0.0/24")}}})
	one, other := web("d/a"), web("d/b")
	other.Ports[0].Number = 81
	allocate := func(r *Request) string {
		got, notice, err := a.Allocate(r, nil)
		if err != nil || len(got) != 1 || got[0].String() != "10.0.0.1" {
			t.Errorf("%s gets %v, %v, want 10.0.0.1", r.Service, got, err)
		}
		if notice == nil {
			return ""
		}
		return notice.Reason
	}
	for _, step := range []struct {
		exclusive bool
		want      string
	}{{false, ""}, {true, ReasonShared}, {false, ""}} {
		one.Exclusive = step.exclusive
		for _, r := range []*Request{one, other} {
			if got := allocate(r); got != step.want {
				t.Errorf("exclusive %v: %s has notice %q, want %q", step.exclusive, r.Service, got, step.want)
			}
		}
	}
}
