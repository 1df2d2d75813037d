package conntrack

import (
	"crypto/rand"
	"encoding/binary"

	"loxilb/internal/kernel/datapath/bpf"
)

const (
	tagBits       = uint32(bpf.TcTableLayoutTAG_BITS)
	tagsPerWord   = uint32(bpf.TcTableLayoutTAGS_PER_WORD)
	rowsPerBucket = uint32(bpf.TcTableLayoutROWS_PER_BUCKET)
	perGroup      = uint32(bpf.TcTableLayoutBUCKETS_PER_GROUP)
	rowLive       = uint64(1) << bpf.TcTableLayoutROW_LIVE_BIT
	rowPlaced     = uint64(3) << bpf.TcTableLayoutROW_PLACED_SHIFT
	// In the last word of tags.
	spilledOne = uint64(1) << bpf.TcTableLayoutSPILLED_SHIFT
	spilled    = 0xff * spilledOne
	away       = uint64(1) << bpf.TcTableLayoutAWAY_BIT
	awaySeen   = uint64(1) << bpf.TcTableLayoutAWAY_SEEN_BIT

	hashRow = 1 // HASH_ROW of bpf/table/place.h
)

// seeds are the seeds of the table's hash: random, so attackers cannot choose tuples that share a
// bucket.
type seeds = [bpf.TcTableLayoutTABLE_SEEDS]uint32

func newSeeds() seeds {
	var (
		s seeds
		b [4 * len(s)]byte
	)
	_, _ = rand.Read(b[:]) // never fails
	for i := range s {
		s[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return s
}

// A home is a place for a key.
type home struct {
	hash   uint64
	placed bpf.TcPlacement
}

// homes returns the first and the second home of a key, as key_placement() of bpf/table/place.h.
func (s *state) homes(k *bpf.TcConnectionKey) []home {
	tuple := tupleHash(&s.Seeds, k)
	if s.HasHomes == 0 {
		return []home{{tuple, bpf.TcPlacementBY_TUPLE}}
	}
	byTuple := home{placeTagged(tuple, k), bpf.TcPlacementBY_TUPLE}
	client, has := clientOf(k)
	if !has {
		return []home{byTuple, {placeTagged(tuple>>32|tuple<<32, k), bpf.TcPlacementBY_TURNED_TUPLE}}
	}
	byClient := home{placeTagged(client.place(&s.Seeds), k), bpf.TcPlacementBY_CLIENT}
	if s.isByClient(client) {
		return []home{byClient, byTuple}
	}
	return []home{byTuple, byClient}
}

// A client is the end of a connection that has opened it, recognized by its port.
type client struct {
	addr  bpf.TcIpAddr
	port  uint16 // as in keys
	reply bool   // it is the destination
}

// portHigh is the highest bit of a port, as ports are in keys.
const portHigh = 0x80

// clientOf returns the client if the ports of a key identify it.
func clientOf(k *bpf.TcConnectionKey) (c client, has bool) {
	if k.Dport&portHigh != 0 {
		c = client{k.Daddr, k.Dport, true}
	} else {
		c = client{k.Saddr, k.Sport, false}
	}
	return c, (k.Sport^k.Dport)&portHigh != 0
}

// isByClient is key_is_by_client().
func (s *state) isByClient(c client) bool {
	class := c.addr.Word[3] >> 24 % uint32(bpf.TcTableLayoutCLIENT_CLASSES)
	return !c.reply || s.ByClient>>class&1 != 0
}

// place is client_hash_of(), with HASH_ROW of replies.
func (c client) place(s *seeds) uint64 {
	h := (uint64(s[4]) | uint64(s[5])<<32) * uint64(c.port)
	for i := 0; i < len(c.addr.Word); i += 2 {
		h += uint64(c.addr.Word[i]+s[i]) * uint64(c.addr.Word[i+1]+s[i+1])
	}
	h ^= h >> 32
	h *= uint64(bpf.TcHashFactorHASH_FACTOR)
	h ^= h >> 32
	if c.reply {
		h ^= hashRow
	}
	return h
}

// placeTagged is place_tagged() of a table whose keys have two homes.
func placeTagged(place uint64, k *bpf.TcConnectionKey) uint64 {
	both := uint64(k.Saddr.Word[2]^k.Daddr.Word[2]) | uint64(k.Saddr.Word[3]^k.Daddr.Word[3])<<32
	both += uint64(k.Sport) | uint64(k.Dport)<<16 | uint64(k.Protocol)<<32
	return place ^ both*uint64(bpf.TcHashFactorHASH_FACTOR)>>(64-tagBits)&^hashRow
}

// tupleHash is table_hash().
func tupleHash(s *seeds, k *bpf.TcConnectionKey) uint64 {
	words := [len(s)]uint32{
		k.Saddr.Word[0], k.Saddr.Word[1], k.Saddr.Word[2], k.Saddr.Word[3],
		k.Daddr.Word[0], k.Daddr.Word[1], k.Daddr.Word[2], k.Daddr.Word[3],
		uint32(k.Sport) | uint32(k.Dport)<<16, uint32(k.Protocol),
	}
	var h uint64
	for i := 0; i < len(words); i += 2 {
		h += uint64(words[i]+s[i]) * uint64(words[i+1]+s[i+1])
	}
	return spread(h)
}

// spread is hash_spread().
func spread(h uint64) uint64 {
	h ^= h >> 32
	h *= uint64(bpf.TcHashFactorHASH_FACTOR)
	h ^= h >> 29
	h *= uint64(bpf.TcHashFactorHASH_FACTOR_2)
	return h ^ h>>32
}

// groupOf returns a key's group in a table with this number of groups that is not growing.
func groupOf(h uint64, groups uint32) uint32 { return uint32(h >> 32 * uint64(groups) >> 32) }

func bucketOf(h uint64) uint32 { return uint32(h>>32) % perGroup }

// homeOf is hash_home().
func homeOf(h uint64) uint32 {
	return uint32(uint16(h>>tagBits))*rowsPerBucket>>16 ^ uint32(h&hashRow)
}

func tag(h uint64) uint64 {
	if t := h & 0xffff; t != 0 {
		return t
	}
	return 1
}
