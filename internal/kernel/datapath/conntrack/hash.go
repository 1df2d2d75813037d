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
	// In the last word of tags.
	spilledOne = uint64(1) << bpf.TcTableLayoutSPILLED_SHIFT
)

// seeds are the seeds of the table's hash: random, so that nobody can choose tuples that share a
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

// hash is table_hash() of bpf/table/table.h.
func hash(s *seeds, k *bpf.TcConnectionKey) uint64 {
	words := [len(s)]uint32{
		k.Saddr.Word[0], k.Saddr.Word[1], k.Saddr.Word[2], k.Saddr.Word[3],
		k.Daddr.Word[0], k.Daddr.Word[1], k.Daddr.Word[2], k.Daddr.Word[3],
		uint32(k.Sport) | uint32(k.Dport)<<16, uint32(k.Protocol),
	}
	var h uint64
	for i := 0; i < len(words); i += 2 {
		h += uint64(words[i]+s[i]) * uint64(words[i+1]+s[i+1])
	}
	h ^= h >> 32
	h *= uint64(bpf.TcHashFactorHASH_FACTOR)
	h ^= h >> 29
	h *= uint64(bpf.TcHashFactorHASH_FACTOR_2)
	return h ^ h>>32
}

// groupOf returns a key's group in a table of so many groups that is not growing.
func groupOf(h uint64, groups uint32) uint32 { return uint32(h >> 32 * uint64(groups) >> 32) }

func bucketOf(h uint64) uint32 { return uint32(h>>32) % perGroup }

func homeOf(h uint64) uint32 { return uint32(uint16(h>>tagBits)) * rowsPerBucket >> 16 }

func tag(h uint64) uint64 {
	if t := h & 0xffff; t != 0 {
		return t
	}
	return 1
}
