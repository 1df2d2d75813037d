package conntrack

import (
	"math/rand/v2"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
)

// TestChosenTuples checks that an attacker who chooses tuples without knowing the seeds cannot fill
// a group before the table reaches its limit: not by sequential ports or addresses, nor by powers
// of two, nor by words that cancel each other out.
func TestChosenTuples(t *testing.T) {
	t.Parallel()
	const groups, tables = 132, 20
	const connections = groups * int(rowsPerGroup) * fullPercent / 100 / 2 // both directions are entries
	v4 := func(a uint32) bpf.TcIpAddr { return bpf.TcIpAddr{Word: [4]uint32{0, 0, 0xffff0000, a}} }
	var random *rand.Rand
	for name, client := range map[string]func(i uint32) (bpf.TcIpAddr, uint16){
		"ports of one client":       func(i uint32) (bpf.TcIpAddr, uint16) { return v4(0x0100000a), uint16(i) },
		"one port of many clients":  func(i uint32) (bpf.TcIpAddr, uint16) { return v4(i << 8), 80 },
		"addresses in large steps":  func(i uint32) (bpf.TcIpAddr, uint16) { return v4(i << 18), uint16(i >> 14 << 15) },
		"address less port":         func(i uint32) (bpf.TcIpAddr, uint16) { return v4(-i), uint16(i) },
		"IPv6, one word":            func(i uint32) (bpf.TcIpAddr, uint16) { return bpf.TcIpAddr{Word: [4]uint32{i, 0, 0, 0}}, 80 },
		"IPv6, words against words": func(i uint32) (bpf.TcIpAddr, uint16) { return bpf.TcIpAddr{Word: [4]uint32{i, -i, i << 16, ^i}}, 80 },
		"IPv6, two words apart":     func(i uint32) (bpf.TcIpAddr, uint16) { return bpf.TcIpAddr{Word: [4]uint32{i % 256, i >> 8, 0, 0}}, 80 },
		"by lot": func(uint32) (bpf.TcIpAddr, uint16) {
			return v4(random.Uint32()), uint16(random.Uint32())
		},
	} {
		random = rand.New(rand.NewPCG(1, 2)) // the same for each case, in any order
		refused := 0
		for range tables {
			of := &state{HasHomes: 1, ByClient: ^uint64(0)}
			for i := range of.Seeds {
				of.Seeds[i] = random.Uint32()
			}
			table := make([][]element, groups)
			for i := range table {
				table[i] = make([]element, perGroup)
			}
			for i := range uint32(connections) {
				addr, port := client(i)
				for _, key := range []bpf.TcConnectionKey{
					{Saddr: addr, Daddr: v4(0x0200000a), Sport: port, Dport: 80, Protocol: 6},
					{Saddr: v4(0x0300000a), Daddr: addr, Sport: 80, Dport: port, Protocol: 6},
				} {
					if !enter(of, table, &key) {
						refused++
					}
				}
			}
		}
		if refused > 0 {
			t.Errorf("%s: %d of %d entries found their group full", name, refused, 2*tables*connections)
		}
	}
}

// enter writes an entry at one of its key's homes, as entry_insert() does; false: it has no room.
func enter(of *state, table [][]element, key *bpf.TcConnectionKey) bool {
	for i, h := range of.homes(key) {
		if put(table[groupOf(h.hash, uint32(len(table)))], h, &Entry{Key: *key}, i > 0) {
			return true
		}
	}
	return false
}
