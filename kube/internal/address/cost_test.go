package address

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// TestManyServices checks that tens of thousands of services get addresses in seconds, shared or
// not: a new service must not visit all others.
func TestManyServices(t *testing.T) {
	t.Parallel()
	const services, most = 30000, 20 * time.Second
	for _, sharing := range []Sharing{ShareNever, ShareAlways} {
		for what, port := range map[string]func(int) int32{
			"the same port": func(int) int32 { return 80 },
			"other ports":   func(i int) int32 { return int32(1 + i) },
		} {
			a := New()
			a.SetPools([]Pool{{Name: "p", Auto: true, Sharing: sharing, Ranges: []Range{mustRange(t, "10.0.0.0/16")}}})
			began := time.Now()
			for i := range 2 * services { // each service twice: new, and reconciled again
				r := web(fmt.Sprint("d/", i%services))
				r.Ports[0].Number = port(i % services)
				if _, _, err := a.Allocate(r, nil); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > most {
					t.Fatalf("sharing %s, %s: %d services took %v", sharing, what, i, took)
				}
			}
		}
	}
}

// TestUsageOfManyNodes checks that the usage of a pool does not compare each used address with the
// prefixes of all nodes: it is computed after each change, and blocks allocations meanwhile.
func TestUsageOfManyNodes(t *testing.T) {
	t.Parallel()
	const services, nodes, most = 20000, 10000, 3 * time.Second
	a := New()
	a.SetPools([]Pool{{Name: "p", Auto: true, Ranges: []Range{mustRange(t, "20.20.0.0/16")}}})
	reserved := Reserved{Prefixes: map[netip.Prefix]string{}}
	for i := range nodes {
		reserved.Prefixes[netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)] = "a node"
		reserved.Prefixes[netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 6: byte(i >> 8), 7: byte(i)}), 64)] = "a node"
	}
	a.SetReserved(reserved)
	for i := range services {
		if _, _, err := a.Allocate(web(fmt.Sprint("d/", i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if u := a.Usage("p"); u.IPv4.Used != services {
		t.Errorf("the usage is %+v, want %d used addresses", u, services)
	}
	if took := time.Since(began); took > most {
		t.Errorf("the usage took %v, want at most %v", took, most)
	}
}

// TestLowestFree checks that each service gets the lowest free address after random releases,
// failed requests and changes of nodes.
func TestLowestFree(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	pools := []Pool{{Name: "p", Auto: true, Ranges: []Range{mustRange(t, "10.0.0.1-10.0.0.9"), mustRange(t, "10.0.0.17-10.0.0.40")}}, {Name: "other"}}
	reserved := map[netip.Addr]string{}
	a := New()
	a.SetPools(pools)
	lowest := func() string {
		for _, rng := range pools[0].Ranges {
			for c := rng.First; rng.contains(c); c = c.Next() {
				if a.used[c] == nil && reserved[c] == "" {
					return c.String()
				}
			}
		}
		return `no IPv4 address is free in pool "p"`
	}
	for range 20000 {
		switch i := random.IntN(40); random.IntN(8) {
		case 0:
			node := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			if reserved[node] != "" {
				delete(reserved, node)
			} else if len(reserved) < 5 {
				reserved[node] = "a node"
			}
			a.SetReserved(Reserved{Addresses: reserved})
		case 1: // a request whose third slot fails
			r := web(fmt.Sprint("d/", i))
			r.Slots = append(r.Slots, Slot{Secondary: true}, Slot{Pool: "other"})
			if _, _, err := a.Allocate(r, nil); err == nil {
				t.Fatal("a pool without addresses has one")
			}
		case 2: // a move to an address outside of the pool
			r := web(fmt.Sprint("d/", i))
			r.Slots[0].Address = netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})
			want(t, a, r, nil, r.Slots[0].Address.String())
		case 3, 4:
			a.Release(fmt.Sprint("d/", i))
		default:
			if r := web(fmt.Sprint("d/", i)); len(a.Of(r.Service)) == 0 {
				want(t, a, r, nil, lowest())
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
