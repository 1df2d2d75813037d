package election

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// Claim is the role that a node claims in an instance. Its values are used in packets.
type Claim uint8

// The claims, weakest first.
const (
	Declines Claim = 1 + iota // the node cannot be MASTER, or an operator made it BACKUP
	Backup                    // the node becomes MASTER if there is no other
	Master                    // the node is MASTER
	Preempts                  // the node takes over from a MASTER that it outranks
	Ordered                   // an operator made the node MASTER
)

func (c Claim) String() string {
	names := [...]string{"none", "declines", "BACKUP", "MASTER", "preempts", "MASTER by an operator"}
	if int(c) < len(names) {
		return names[c]
	}
	return "unknown"
}

// Entry is a node's claim in one instance.
type Entry struct {
	Instance uint32 // InstanceHash
	Claim    Claim
	Priority uint8
	Grants   bool // the node does not take over during the announced restart of its peer
}

// Message is the data after the control section of BFD packets between nodes. Other implementations
// of BFD ignore it, as the length of the control section excludes it.
type Message struct {
	Restart time.Duration // time that the node requests for its restart; 0: no restart
	Entries []Entry
}

// The message begins with magic and a version. A node that does not know the version sees a peer
// without claims.
const (
	magic       = 0x6c6f7869 // "loxi"
	wireVersion = 1
	headSize    = 8
	entrySize   = 8
	restartUnit = 10 * time.Millisecond
	grants      = 1

	// MaxEntries is how many instances two nodes can share.
	MaxEntries = 32
)

// InstanceHash identifies an instance in packets.
func InstanceHash(key string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	return h.Sum32()
}

// Append appends the message to b.
func (m *Message) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, magic)
	b = append(b, wireVersion, byte(len(m.Entries)))
	b = binary.BigEndian.AppendUint16(b, uint16(m.Restart/restartUnit))
	for _, e := range m.Entries {
		var flags byte
		if e.Grants {
			flags = grants
		}
		b = binary.BigEndian.AppendUint32(b, e.Instance)
		b = append(b, byte(e.Claim), e.Priority, flags, 0)
	}
	return b
}

// Parse reads a message. ok is false if there is none: the peer does not take part in elections.
func Parse(b []byte) (m Message, ok bool) {
	if len(b) < headSize || binary.BigEndian.Uint32(b) != magic || b[4] != wireVersion || len(b) < headSize+entrySize*int(b[5]) {
		return m, false
	}
	m.Restart = time.Duration(binary.BigEndian.Uint16(b[6:])) * restartUnit
	for i := range int(b[5]) {
		e := b[headSize+entrySize*i:]
		m.Entries = append(m.Entries, Entry{
			Instance: binary.BigEndian.Uint32(e), Claim: Claim(e[4]), Priority: e[5], Grants: e[6]&grants != 0,
		})
	}
	return m, true
}
