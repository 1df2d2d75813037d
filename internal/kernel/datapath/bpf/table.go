package bpf

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"loxilb/internal/lb"
)

// ServiceTable is one service in the layout of the data path, before ids are assigned. Package
// compile makes it, and datapath writes it.
type ServiceTable struct {
	Key       TcServiceKey
	PortMax   uint16        // last port of a range, host byte order; 0: one port
	Name      string        // for listings; the maps do not hold it
	Idle      time.Duration // 0: the protocol's default
	Algorithm uint8         // enum algorithm
	Mode      uint8         // enum service_mode
	Flags     uint16        // enum service_flag, except for those that datapath adds itself
	MSS       uint16        // largest TCP segment; 0: any
	Limits    Limits        // of connections
	SNAT      []TcIpAddr    // source addresses that replace the mode's
	Secondary []TcIpAddr    // secondary VIPs, each with the same row
	Persist   time.Duration // how long a client's endpoint is kept; 0: not ALGORITHM_PERSIST
	// PersistPrefix is the number of bits, of the 128 of an address, that identify a client.
	PersistPrefix uint8
	QUIC          []QUICConfig    // of connection IDs
	Endpoints     []EndpointTable // in the user's order, without duplicates
	Tenths        bool            // CurrentWeight of endpoints is in tenths of their weights
	Parents       []uint32        // for each of Endpoints, the index of the user's endpoint to which its counters belong; nil: its own index
	Denied        []netip.Prefix  // prefixes that must not connect, sorted, each once
	Sources       []netip.Prefix  // prefixes that may connect, sorted, each once; none: all
	Slots         []uint32        // table of the algorithm: indices into Endpoints
	Leave         EndMode         // how TCP connections of removed endpoints end
}

// Deadline is the time at which an endpoint's TCP connections are ended, by RSTs to both sides. The
// zero value: they end by themselves.
type Deadline struct {
	At   time.Time
	Rate int    // connections per second
	Why  string // for logs
	// Drain names the drain that ends them: endpoints of the same drain share its rate. "": no
	// drain.
	Drain string
}

// EndMode is how TCP connections end whose endpoints are removed from a service. The zero value: by
// themselves.
type EndMode struct {
	Ends  bool
	After time.Duration
}

// Limits are the connection limits of a service and of each of its clients, as limits_by_service
// has them; 0: unlimited.
type Limits struct {
	Rate, Connections, ClientRate, ClientConnections uint32
	ClientPrefix                                     uint32 // number of bits, of the 128 of an address, that identify a client
}

// Any reports whether anything is limited.
func (l Limits) Any() bool { return l.Rate|l.Connections|l.ClientRate|l.ClientConnections != 0 }

// EndpointTable is one endpoint of a ServiceTable.
type EndpointTable struct {
	Addr   TcIpAddr
	Port   uint16   // network byte order, as in the map
	Shift  bool     // Port is for the service's first port, the next for the next
	Weight uint16   // for listings
	Source TcIpAddr // our address towards it; zero: unknown, or not needed in the mode
	// SourceBits and AddrBits are the lengths, in 128 bits, of the networks of Source and Addr;
	// answers to clients there bypass this machine. 0: unknown.
	SourceBits, AddrBits uint8
	SNAT                 bool     // in mode default: it sees Source instead of any client
	CurrentWeight        uint32   // current weight for new connections: 0 for none, regardless of Weight
	Deadline             Deadline // of its connections, because it is down; drains are set separately
	ServerID             ServerID // in connection IDs of QUIC; zero: none
	Failed               bool     // down while others are up: unanswered SYNs, and flows of this machine's own sockets, move to another endpoint
}

// String prints the table as one line for the service, one for each endpoint and one for the slots;
// golden files and debug logs use it.
func (t ServiceTable) String() string {
	var b strings.Builder
	idle := "default"
	if t.Idle > 0 {
		idle = t.Idle.String()
	}
	fmt.Fprintf(&b, "service %s algorithm=%s slots=%d idle=%s", t.Key, lb.Algorithm(t.Algorithm), len(t.Slots), idle)
	if t.Persist > 0 {
		fmt.Fprintf(&b, " persist=%s/%d", t.Persist, t.PersistPrefix)
	}
	if t.PortMax > 0 {
		fmt.Fprintf(&b, " last-port=%d", t.PortMax)
	}
	b.WriteByte('\n')
	for i, e := range t.Endpoints {
		fmt.Fprintf(&b, "endpoint %d %s weight=%d", i, AddrPort(e.Addr, e.Port), e.Weight)
		if e.Shift {
			b.WriteString(" and on")
		}
		if e.SNAT {
			fmt.Fprintf(&b, " snat=%s", e.Source.Netip())
		}
		b.WriteByte('\n')
	}
	for _, p := range t.Denied {
		fmt.Fprintf(&b, "denied %s\n", p)
	}
	for _, p := range t.Sources {
		fmt.Fprintf(&b, "source %s\n", p)
	}
	if t.Flags != 0 || t.MSS != 0 {
		fmt.Fprintf(&b, "flags=%#x mss=%d\n", t.Flags, t.MSS)
	}
	if t.Limits.Any() {
		fmt.Fprintf(&b, "limits %+v\n", t.Limits)
	}
	for _, a := range t.Secondary {
		fmt.Fprintf(&b, "also at %s\n", a.Netip())
	}
	writeSlots(&b, t.Slots)
	return b.String()
}

// writeSlots writes long tables as the number of slots of each endpoint, and a sum that changes
// with any slot.
func writeSlots(b *strings.Builder, slots []uint32) {
	const readable = 256
	b.WriteString("slots")
	if len(slots) <= readable {
		for _, s := range slots {
			fmt.Fprintf(b, " %d", s)
		}
		b.WriteByte('\n')
		return
	}
	have := map[uint32]int{}
	sum := crc32.NewIEEE()
	for _, s := range slots {
		have[s]++
		sum.Write(binary.BigEndian.AppendUint32(nil, s))
	}
	for _, s := range slices.Sorted(maps.Keys(have)) {
		fmt.Fprintf(b, " %d:%d", s, have[s])
	}
	fmt.Fprintf(b, " crc=%08x\n", sum.Sum32())
}

func (k TcServiceKey) String() string {
	s := AddrPort(k.Vip, k.Port).String()
	if k.Ranged() {
		s += " and on"
	}
	s += "/" + lb.Protocol(k.Protocol).OfService().String()
	if k.Mark != 0 {
		s += fmt.Sprintf("/mark=%d", k.Mark)
	}
	return s
}

// Ranged distinguishes a service with a range of ports from one with only its first port.
func (k TcServiceKey) Ranged() bool { return k.Kind == uint8(TcServiceKindSERVICE_RANGE) }

// Addr returns an address in the layout of the maps: 16 bytes, IPv4 mapped.
func Addr(a netip.Addr) TcIpAddr {
	var out TcIpAddr
	b := a.As16()
	for i := range out.Word {
		out.Word[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return out
}

// Mask returns the mask of a prefix, for addresses of both IP versions.
func Mask(p netip.Prefix) (mask TcIpAddr) {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 128 - 32
	}
	var b [16]byte
	for i := range bits {
		b[i/8] |= 0x80 >> (i % 8)
	}
	for i := range mask.Word {
		mask.Word[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return mask
}

// Prefix returns the first bits of an address: copy_prefix() of bpf/packet/address.h.
func Prefix(a TcIpAddr, bits uint32) (out TcIpAddr) {
	for i, word := range a.Word {
		of := min(bits, 32)
		bits -= of
		mask := binary.BigEndian.AppendUint32(nil, uint32(uint64(1<<32-1)<<(32-of)))
		out.Word[i] = word & binary.NativeEndian.Uint32(mask)
	}
	return out
}

// Netip returns the inverse of Addr; mapped addresses become IPv4.
func (a TcIpAddr) Netip() netip.Addr {
	var b [16]byte
	for i, w := range a.Word {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return netip.AddrFrom16(b).Unmap()
}

// Port converts a port from host to network byte order, or back.
func Port(p uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], p)
	return binary.NativeEndian.Uint16(b[:])
}

// AddrPort converts an address and a port from the layout of the maps.
func AddrPort(a TcIpAddr, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(a.Netip(), Port(port))
}
