package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// sctpProber probes by an SCTP INIT. It uses a raw socket, so the kernel need not support SCTP. An
// INIT ACK shows that a server listens. The reply is an ABORT instead of a COOKIE ECHO: the server
// has no state yet, and middleboxes remove theirs. Probes share sockets, as those of ping do.
type sctpProber struct {
	spec   Spec
	shared *Sockets
}

// errAborted is the result of an ABORT: no server listens at the port.
var errAborted = errors.New("refused the association (ABORT)")

func (a sctpProber) Probe(ctx context.Context) (Answer, error) {
	s, err := a.socket()
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	if a.spec.Redirect != nil {
		defer s.Close()
	}
	delay, err := s.exchange(ctx, a.spec)
	if errors.Is(err, errAborted) || errors.Is(err, errNoSCTP) {
		return Answer{}, err
	}
	if err != nil {
		return Answer{}, shorten(a.spec, errors.Join(sourceError(a.spec.From, err), err))
	}
	return Answer{What: "accepts associations", Delay: delay}, nil
}

func (a sctpProber) socket() (*associator, error) {
	if a.spec.Redirect == nil {
		return a.shared.associator(a.spec.To.Addr().Is6())
	}
	return newAssociator(a.spec.To.Addr().Is6(), a.shared.redirectedID(), a.spec.Redirect)
}

const (
	protoSCTP = "132"

	sctpHeader    = 12 // ports, verification tag, checksum
	sctpPort      = 2  // offset of the destination port
	sctpChunk     = 4  // type, flags, length
	sctpInitBytes = 20 // of an INIT or INIT ACK chunk, without parameters

	sctpInit    = 1
	sctpInitAck = 2
	sctpAbort   = 6
	// sctpReflected is a flag of ABORT: its tag is the tag of the packet that it answers, not
	// the tag that the receiver has chosen.
	sctpReflected = 1
)

// associator sends INITs of one IP version, and passes each answer to the probe that waits for it.
type associator struct {
	rawSocket
	refusals rawSocket // receives ICMP errors
	port     uint16    // source port

	mu      sync.Mutex
	waiting map[uint32]*pendingInit // by the verification tag of the answer
}

// pendingInit is an INIT that waits for its answer.
type pendingInit struct {
	spec   Spec
	answer chan initAnswer
}

// initAnswer is the answer to an INIT.
type initAnswer struct {
	at  time.Time
	err error // errAborted or errNoSCTP; nil: INIT ACK
}

// newAssociator opens the sockets of an associator. redirect, if not nil, redirects its packets.
func newAssociator(six bool, port uint16, redirect func(fd int) error) (*associator, error) {
	raw, err := openRaw(six, protoSCTP, redirect)
	if err != nil {
		return nil, err
	}
	if err := raw.keep(sctpPort, port); err != nil {
		raw.Close()
		return nil, err
	}
	refusals, err := openRefusals(six, port)
	if err != nil {
		raw.Close()
		return nil, err
	}
	s := &associator{rawSocket: raw, refusals: refusals, port: port, waiting: map[uint32]*pendingInit{}}
	// The receiver does not verify the CRC32c: packets that stay on this machine have none, as
	// the kernel leaves it to the device. The tag proves enough.
	go s.receive(2048, s.deliver)
	go refusals.receive(2048, s.deliverRefusal)
	return s, nil
}

// Close closes both sockets.
func (s *associator) Close() error { return errors.Join(s.rawSocket.Close(), s.refusals.Close()) }

// exchange sends an INIT, and waits for its answer.
func (s *associator) exchange(ctx context.Context, spec Spec) (time.Duration, error) {
	w := &pendingInit{spec: spec, answer: make(chan initAnswer, 1)}
	tag := s.register(w)
	defer s.unregister(tag)
	start := time.Now()
	if err := s.send(initPacket(s.port, spec.target().Port(), tag), spec.From, spec.target().Addr()); err != nil {
		return 0, err
	}
	select {
	case a := <-w.answer:
		return a.at.Sub(start), a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// register assigns an INIT a unique and secret tag.
func (s *associator) register(w *pendingInit) (tag uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for tag == 0 || s.waiting[tag] != nil {
		tag = rand.Uint32()
	}
	s.waiting[tag] = w
	return tag
}

func (s *associator) unregister(tag uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, tag)
}

// deliver passes an answer to its INIT, and replies to an INIT ACK with an ABORT.
func (s *associator) deliver(from netip.Addr, p []byte, received time.Time) {
	if len(p) < sctpHeader+sctpChunk {
		return
	}
	sender, chunk := netip.AddrPortFrom(from, binary.BigEndian.Uint16(p)), p[sctpHeader:]
	s.mu.Lock()
	w := s.waiting[binary.BigEndian.Uint32(p[4:])]
	s.mu.Unlock()
	if w == nil || sender != w.spec.target() {
		return
	}
	a := initAnswer{at: received}
	switch {
	case chunk[0] == sctpInitAck && len(chunk) >= sctpInitBytes:
		tag := binary.BigEndian.Uint32(chunk[sctpChunk:])
		_ = s.send(abortPacket(s.port, sender.Port(), tag), w.spec.From, from) // the probe succeeds even if this fails
	case chunk[0] == sctpAbort && chunk[1]&sctpReflected == 0:
		a.err = errAborted
	default:
		return
	}
	w.deliver(a)
}

func (w *pendingInit) deliver(a initAnswer) {
	select {
	case w.answer <- a:
	default: // a duplicate
	}
}

// initPacket returns an INIT that requests one stream in each direction.
func initPacket(sport, dport uint16, tag uint32) []byte {
	c := []byte{sctpInit, 0, 0, sctpInitBytes}
	c = binary.BigEndian.AppendUint32(c, tag)
	c = binary.BigEndian.AppendUint32(c, 1<<16)         // receive window
	c = append(c, 0, 1, 0, 1)                           // outbound and inbound streams
	c = binary.BigEndian.AppendUint32(c, rand.Uint32()) // first sequence number
	return sctpPacket(sport, dport, 0, c)
}

func abortPacket(sport, dport uint16, tag uint32) []byte {
	return sctpPacket(sport, dport, tag, []byte{sctpAbort, 0, 0, sctpChunk})
}

func sctpPacket(sport, dport uint16, tag uint32, chunk []byte) []byte {
	p := binary.BigEndian.AppendUint16(nil, sport)
	p = binary.BigEndian.AppendUint16(p, dport)
	p = binary.BigEndian.AppendUint32(p, tag)
	p = append(append(p, 0, 0, 0, 0), chunk...)
	binary.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
	return p
}
