package bfd

import (
	"encoding/binary"
	"errors"
	"time"
)

// State is the state of a session (RFC 5880, 4.1).
type State uint8

// The states, with their numbers in packets.
const (
	AdminDown State = iota
	Down
	Init
	Up
)

func (s State) String() string { return [...]string{"AdminDown", "Down", "Init", "Up"}[s&3] }

// Diagnostic is why a session last changed its state (RFC 5880, 4.1).
type Diagnostic uint8

// The diagnostics that sessions of this package have.
const (
	NoDiagnostic   Diagnostic = 0
	TimeExpired    Diagnostic = 1
	NeighborDown   Diagnostic = 3
	AdminDownDiagn Diagnostic = 7
)

const (
	version     = 1
	controlSize = 24
	maxPayload  = 512 // of a packet with what follows its control section
)

// Packet is a control packet, and what follows it in its datagram.
type Packet struct {
	State       State
	Diagnostic  Diagnostic
	Poll, Final bool
	Multiplier  uint8
	My, Your    uint32 // discriminators
	MinTx       time.Duration
	MinRx       time.Duration
	Extra       []byte // after the control section, which its length excludes
}

// Append appends the packet to b.
func (p *Packet) Append(b []byte) []byte {
	flags := byte(p.State) << 6
	if p.Poll {
		flags |= 1 << 5
	}
	if p.Final {
		flags |= 1 << 4
	}
	b = append(b, version<<5|byte(p.Diagnostic), flags, p.Multiplier, controlSize)
	for _, n := range [...]uint32{p.My, p.Your, uint32(p.MinTx.Microseconds()), uint32(p.MinRx.Microseconds()), 0} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return append(b, p.Extra...)
}

var (
	errShort         = errors.New("shorter than its length field")
	errVersion       = errors.New("not of version 1")
	errMultiplier    = errors.New("its detect multiplier is zero")
	errMultipoint    = errors.New("multipoint")
	errDiscriminator = errors.New("without a discriminator")
	errAuthenticated = errors.New("authenticated, but no key is configured")
)

// Parse reads a datagram, with the checks of RFC 5880, 6.8.6, that need no session. Extra is a part
// of b.
func Parse(b []byte) (p Packet, err error) {
	if len(b) < controlSize || int(b[3]) < controlSize || int(b[3]) > len(b) {
		return p, errShort
	}
	at := func(i int) uint32 { return binary.BigEndian.Uint32(b[i:]) }
	const authenticated, multipoint = 1 << 2, 1
	p = Packet{
		State: State(b[1] >> 6), Diagnostic: Diagnostic(b[0] & 0x1f), Poll: b[1]&(1<<5) != 0, Final: b[1]&(1<<4) != 0,
		Multiplier: b[2], My: at(4), Your: at(8),
		MinTx: time.Duration(at(12)) * time.Microsecond, MinRx: time.Duration(at(16)) * time.Microsecond,
		Extra: b[b[3]:],
	}
	switch {
	case b[0]>>5 != version:
		err = errVersion
	case b[1]&authenticated != 0:
		err = errAuthenticated
	case b[1]&multipoint != 0:
		err = errMultipoint
	case p.Multiplier == 0:
		err = errMultiplier
	case p.My == 0, p.Your == 0 && p.State != Down && p.State != AdminDown:
		err = errDiscriminator
	}
	return p, err
}
