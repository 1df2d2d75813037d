package address

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// TestManyServices checks that addresses of tens of thousands of services cost seconds, whether
// they share them or not: a new one must not look at all others.
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
			for i := range 2 * services { // each twice: new, and reconciled again
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

// TestLowestFree checks that each service gets the lowest free address, whatever services have left
// or could not have, and whatever pools and nodes were there before.
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
				if a.holders[c] == nil && reserved[c] == "" {
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
		case 1: // its third address does not exist
			r := web(fmt.Sprint("d/", i))
			r.Slots = append(r.Slots, Slot{Secondary: true}, Slot{Pool: "other"})
			if _, _, err := a.Allocate(r, nil); err == nil {
				t.Fatal("a pool without addresses has one")
			}
		case 2: // it moves to an address outside of the pool
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
