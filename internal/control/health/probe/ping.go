package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// pingProber probes by ICMP echo. All probes of an IP version share a socket: each of several
// sockets would receive all replies. Probes to a VIP have a socket each, as a redirection affects a
// whole socket.
type pingProber struct {
	spec   Spec
	shared *Sockets
}

func (p pingProber) Probe(ctx context.Context) (Answer, error) {
	e, err := p.echoer()
	if err == nil && p.spec.Redirect != nil {
		defer e.Close()
	}
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	delay, err := e.exchange(ctx, p.spec)
	if err != nil {
		return Answer{}, shorten(p.spec, errors.Join(sourceError(p.spec.From, err), err))
	}
	return Answer{What: "answered", Delay: delay}, nil
}

func (p pingProber) echoer() (*echoer, error) {
	if p.spec.Redirect == nil {
		return p.shared.echoer(p.spec.To.Addr().Is6())
	}
	return newEchoer(p.spec.To.Addr().Is6(), p.shared.redirectedID(), p.spec.Redirect)
}

// sourceError returns why the source address of a request that could not be sent is unusable; nil:
// it is usable. If this machine lacks the address, sending fails with a misleading "no route".
func sourceError(from netip.Addr, sending error) error {
	var errno syscall.Errno
	if !from.IsValid() || !errors.As(sending, &errno) {
		return nil
	}
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)))
	if err != nil {
		return err
	}
	return c.Close()
}

// echoer sends echo requests of one IP version, and passes each reply to the probe that waits for
// it.
type echoer struct {
	rawSocket
	id uint16 // identifier of all requests; unique in this process

	mu      sync.Mutex
	next    uint16                  // sequence number
	waiting map[uint16]*pendingEcho // by sequence number
}

// pendingEcho is a request that waits for its reply.
type pendingEcho struct {
	to       netip.Addr
	token    uint64 // in the request and in the reply
	received chan time.Time
}

// echoID is the offset of the identifier in an ICMP echo, of IPv4 and IPv6.
const echoID = 4

// newEchoer opens the socket of an echoer. redirect, if not nil, redirects its packets.
func newEchoer(six bool, id uint16, redirect func(fd int) error) (*echoer, error) {
	protocol := "icmp"
	if six {
		protocol = "ipv6-icmp"
	}
	raw, err := openRaw(six, protocol, redirect)
	if err != nil {
		return nil, err
	}
	// The filter by identifier also excludes replies to other processes.
	if err := errors.Join(raw.keepICMP(ipv4.ICMPTypeEchoReply, ipv6.ICMPTypeEchoReply), raw.keep(echoID, id)); err != nil {
		raw.Close()
		return nil, err
	}
	e := &echoer{rawSocket: raw, id: id, waiting: map[uint16]*pendingEcho{}}
	go e.receive(256, e.handleReply)
	return e, nil
}

// keepICMP makes the kernel deliver only ICMP messages of a type.
func (s rawSocket) keepICMP(v4 ipv4.ICMPType, v6 ipv6.ICMPType) error {
	if s.v6 != nil {
		var filter ipv6.ICMPFilter
		filter.SetAll(true)
		filter.Accept(v6)
		return s.v6.SetICMPFilter(&filter)
	}
	var filter ipv4.ICMPFilter
	filter.SetAll(true)
	filter.Accept(v4)
	return s.v4.SetICMPFilter(&filter)
}

// exchange sends a request, and waits for its reply.
func (e *echoer) exchange(ctx context.Context, spec Spec) (time.Duration, error) {
	w := &pendingEcho{to: spec.target().Addr(), token: rand.Uint64(), received: make(chan time.Time, 1)}
	number, err := e.register(w)
	if err != nil {
		return 0, err
	}
	defer e.unregister(number)
	packet, err := e.request(number, w.token)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := e.send(packet, spec.From, w.to); err != nil {
		return 0, err
	}
	select {
	case at := <-w.received:
		return at.Sub(start), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// register assigns a request a sequence number that no waiting request has.
func (e *echoer) register(w *pendingEcho) (number uint16, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for range 1 << 16 {
		e.next++
		if e.waiting[e.next] == nil {
			e.waiting[e.next] = w
			return e.next, nil
		}
	}
	return 0, fmt.Errorf("%w: %d other probes wait for an answer", ErrNotSent, len(e.waiting))
}

func (e *echoer) unregister(number uint16) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.waiting, number)
}

// request returns an echo request. For IPv6, the kernel adds the checksum.
func (e *echoer) request(number uint16, token uint64) ([]byte, error) {
	m := icmp.Message{
		Type: ipv4.ICMPTypeEcho,
		Body: &icmp.Echo{ID: int(e.id), Seq: int(number), Data: binary.BigEndian.AppendUint64(nil, token)},
	}
	if e.v6 != nil {
		m.Type = ipv6.ICMPTypeEchoRequest
	}
	return m.Marshal(nil)
}

// handleReply parses and delivers a reply.
func (e *echoer) handleReply(from netip.Addr, packet []byte, received time.Time) {
	protocol := ipv4.ICMPTypeEchoReply.Protocol()
	if e.v6 != nil {
		protocol = ipv6.ICMPTypeEchoReply.Protocol()
	}
	m, err := icmp.ParseMessage(protocol, packet)
	if err != nil {
		return
	}
	if reply, ok := m.Body.(*icmp.Echo); ok && len(reply.Data) == 8 {
		e.deliver(from, reply, received)
	}
}

// deliver passes a reply to its request if it comes from the probed address and returns the token.
func (e *echoer) deliver(from netip.Addr, reply *icmp.Echo, received time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.waiting[uint16(reply.Seq)]
	if w == nil || reply.ID != int(e.id) || w.to != from || w.token != binary.BigEndian.Uint64(reply.Data) {
		return
	}
	select {
	case w.received <- received:
	default: // a duplicate
	}
}

// Sockets are the raw sockets that probers share. Each is opened when the first probe needs it.
type Sockets struct {
	mu         sync.Mutex
	echo       [2]*echoer     // IPv4, IPv6
	sctp       [2]*associator // IPv4, IPv6
	closed     bool
	redirected atomic.Uint32 // number of sockets so far that were redirected to a VIP
}

// redirectedID returns an echo identifier, or SCTP port, for a socket that is redirected to a VIP.
// It conflicts with no client's connection, as no such connection has the VIP as its endpoint.
func (s *Sockets) redirectedID() uint16 { return uint16(s.redirected.Add(1)) }

// unusedID returns an echo identifier, or SCTP port, that conflicts with no client's connection.
// Connections that are translated to this machine's address do not use the ports that the kernel
// assigns to sockets, nor the echo identifiers with these numbers.
func unusedID() (uint16, error) {
	c, err := net.ListenUDP("udp", nil)
	if err != nil {
		return 0, err
	}
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Port(), c.Close()
}

func (s *Sockets) echoer(six bool) (*echoer, error) {
	return socketOf(s, &s.echo, six, newEchoer)
}

func (s *Sockets) associator(six bool) (*associator, error) {
	return socketOf(s, &s.sctp, six, newAssociator)
}

// socketOf returns the socket of an IP version. The first call opens it.
func socketOf[T any](s *Sockets, all *[2]*T, six bool, open func(six bool, id uint16, redirect func(fd int) error) (*T, error)) (*T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	version := 0
	if six {
		version = 1
	}
	if all[version] == nil {
		id, err := unusedID()
		if err != nil {
			return nil, err
		}
		if all[version], err = open(six, id, nil); err != nil {
			return nil, err
		}
	}
	return all[version], nil
}

// Close closes the sockets. Later probes fail.
func (s *Sockets) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, e := range s.echo {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	for _, a := range s.sctp {
		if a != nil {
			errs = append(errs, a.Close())
		}
	}
	return errors.Join(errs...)
}
