package bpf

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

// Attached has the rows of all policers and mirrors, and of their attachments.
type Attached struct {
	Policers map[string]TcPolicer // by name; members that packets change are ignored
	Mirrors  map[string]TcMirror  // by name
	Services map[TcServiceKey]TcAttachments
	Sources  map[netip.Prefix]TcAttachments
	Rules    map[uint64]TcAttachments // by identity
	Ports    map[int]TcAttachments    // by interface index
}

// NotAttached has the errors of failed writes, by name.
type NotAttached struct{ Policers, Mirrors map[string]error }

// NameKey returns the key of an object in maps, a hash of its name, by which the next daemon finds
// it.
func NameKey(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return max(1, binary.LittleEndian.Uint64(sum[:])) // 0 is none
}
