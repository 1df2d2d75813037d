package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// association probes by an INIT of SCTP, over a raw socket: the kernel needs no SCTP. INIT ACK
// shows that a server listens. It has no state before COOKIE ECHO, which never comes; an ABORT in
// place of that ends what middle boxes may keep. Probes share sockets like those of ping.
type association struct {
	q      Question
	shared *Sockets
}

// errAborted is the result of an ABORT: no server listens at the port.
var errAborted = errors.New("refused the association (ABORT)")

func (a association) Probe(ctx context.Context) (Answer, error) {
	s, err := a.socket()
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrNotAsked, err)
	}
	if a.q.Lead != nil {
		defer s.conn.Close()
	}
	delay, err := s.exchange(ctx, a.q)
	if errors.Is(err, errAborted) {
		return Answer{}, err
	}
	if err != nil {
		return Answer{}, plain(a.q, errors.Join(notOurs(a.q.From, err), err))
	}
	return Answer{What: "accepts associations", Delay: delay}, nil
}

func (a association) socket() (*associator, error) {
	if a.q.Lead == nil {
		return a.shared.associator(a.q.To.Addr().Is6())
	}
	return newAssociator(a.q.To.Addr().Is6(), a.shared.identifier(), a.q.Lead)
}

const (
	protoSCTP = "132"

	sctpHeader    = 12 // ports, verification tag, checksum
	sctpChunk     = 4  // type, flags, length
	sctpInitBytes = 20 // of an INIT or INIT ACK chunk, without parameters

	sctpInit    = 1
	sctpInitAck = 2
	sctpAbort   = 6
	// sctpReflected is a flag of ABORT: its tag is that of the packets it answers.
	sctpReflected = 1
)

// associator sends INITs of one IP version, and delivers the answers.
type associator struct {
	conn *net.IPConn
	v4   *ipv4.PacketConn // one of them is nil
	v6   *ipv6.PacketConn
	port uint16

	mu      sync.Mutex
	waiting map[uint32]*initiation // by the verification tag of the answer
}

// initiation is an INIT that waits for its answer.
type initiation struct {
	q      Question
	answer chan initiated
}

// initiated is the answer to an INIT.
type initiated struct {
	at  time.Time
	err error // errAborted
}

// newAssociator redirects its packets by lead, if that is not nil.
func newAssociator(six bool, port uint16, lead func(fd int) error) (*associator, error) {
	s := &associator{port: port, waiting: map[uint32]*initiation{}}
	network, address := "ip4:"+protoSCTP, "0.0.0.0"
	if six {
		network, address = "ip6:"+protoSCTP, "::"
	}
	open := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
			if err == nil && lead != nil {
				err = lead(int(fd))
			}
		}); e != nil {
			return e
		}
		return err
	}}
	conn, err := open.ListenPacket(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	s.conn = conn.(*net.IPConn)
	if six {
		s.v6 = ipv6.NewPacketConn(conn)
	} else {
		s.v4 = ipv4.NewPacketConn(conn)
	}
	if err := s.filter(); err != nil {
		conn.Close()
		return nil, err
	}
	go s.receive()
	return s, nil
}

// filter makes the kernel filter out packets for other ports.
func (s *associator) filter() error {
	keep := []bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(s.port), SkipFalse: 1}, bpf.RetConstant{Val: 1 << 16}, bpf.RetConstant{Val: 0}}
	if s.v6 != nil {
		program, err := bpf.Assemble(append([]bpf.Instruction{bpf.LoadAbsolute{Off: 2, Size: 2}}, keep...))
		if err != nil {
			return err
		}
		return s.v6.SetBPF(program)
	}
	program, err := bpf.Assemble(append([]bpf.Instruction{bpf.LoadMemShift{Off: 0}, bpf.LoadIndirect{Off: 2, Size: 2}}, keep...))
	if err != nil {
		return err
	}
	return s.v4.SetBPF(program)
}

// exchange sends an INIT, and waits for its answer.
func (s *associator) exchange(ctx context.Context, q Question) (time.Duration, error) {
	w := &initiation{q: q, answer: make(chan initiated, 1)}
	tag := s.register(w)
	defer s.unregister(tag)
	start := time.Now()
	if err := s.send(q, initPacket(s.port, q.target().Port(), tag)); err != nil {
		return 0, err
	}
	select {
	case a := <-w.answer:
		return a.at.Sub(start), a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// register assigns an INIT a unique tag, which is secret.
func (s *associator) register(w *initiation) (tag uint32) {
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

func (s *associator) send(q Question, packet []byte) error {
	to, from := &net.IPAddr{IP: q.target().Addr().AsSlice()}, net.IP(q.From.AsSlice())
	if s.v6 != nil {
		_, err := s.v6.WriteTo(packet, &ipv6.ControlMessage{Src: from}, to)
		return err
	}
	_, err := s.v4.WriteTo(packet, &ipv4.ControlMessage{Src: from}, to)
	return err
}

// receive takes answers until the socket is closed. CRC32c is not checked: the kernel leaves it to
// the device where packets do not leave the machine. The tag is proof enough.
func (s *associator) receive() {
	buf := make([]byte, 2048)
	for {
		n, from, err := s.conn.ReadFromIP(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(pause)
			continue
		}
		address, _ := netip.AddrFromSlice(from.IP)
		s.deliver(address.Unmap(), buf[:n], time.Now())
	}
}

// deliver passes an answer to its INIT, and answers INIT ACK by ABORT.
func (s *associator) deliver(from netip.Addr, p []byte, came time.Time) {
	if len(p) < sctpHeader+sctpChunk {
		return
	}
	sender, chunk := netip.AddrPortFrom(from, binary.BigEndian.Uint16(p)), p[sctpHeader:]
	s.mu.Lock()
	w := s.waiting[binary.BigEndian.Uint32(p[4:])]
	s.mu.Unlock()
	if w == nil || sender != w.q.target() {
		return
	}
	a := initiated{at: came}
	switch {
	case chunk[0] == sctpInitAck && len(chunk) >= sctpInitBytes:
		tag := binary.BigEndian.Uint32(chunk[sctpChunk:])
		_ = s.send(w.q, abortPacket(s.port, sender.Port(), tag)) // the answer counts all the same
	case chunk[0] == sctpAbort && chunk[1]&sctpReflected == 0:
		a.err = errAborted
	default:
		return
	}
	select {
	case w.answer <- a:
	default: // a copy
	}
}

// initPacket returns an INIT with the least of everything.
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
