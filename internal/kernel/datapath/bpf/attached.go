package bpf

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

// Attached is what there is of policers and mirrors, and what has them: the rows of maps.
type Attached struct {
	Policers map[string]TcPolicer // by name; what packets change of them counts for nothing
	Mirrors  map[string]TcMirror  // by name
	Services map[TcServiceKey]TcAttachments
	Sources  map[netip.Prefix]TcAttachments
	Rules    map[uint64]TcAttachments // by identity
	Ports    map[int]TcAttachments    // by interface index
}

// NotAttached has what could not be written, by name.
type NotAttached struct{ Policers, Mirrors map[string]error }

// NameKey is the key by which maps have an object: the next daemon finds it by its name alone.
func NameKey(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return max(1, binary.LittleEndian.Uint64(sum[:])) // 0 is none
}
