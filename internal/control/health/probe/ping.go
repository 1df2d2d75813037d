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

// ping probes by ICMP echo. All probes of an IP version share a socket: separate sockets would each
// receive all answers. Probes to a VIP have one socket each, since redirection is per socket.
type ping struct {
	q      Question
	shared *Sockets
}

func (p ping) Probe(ctx context.Context) (Answer, error) {
	e, err := p.echoer()
	if err == nil && p.q.Redirect != nil {
		defer e.Close()
	}
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	delay, err := e.exchange(ctx, p.q)
	if err != nil {
		return Answer{}, shorten(p.q, errors.Join(notOurs(p.q.From, err), err))
	}
	return Answer{What: "answered", Delay: delay}, nil
}

func (p ping) echoer() (*echoer, error) {
	if p.q.Redirect == nil {
		return p.shared.echoer(p.q.To.Addr().Is6())
	}
	return newEchoer(p.q.To.Addr().Is6(), p.shared.identifier(), p.q.Redirect)
}

// notOurs reports whether a request could not be sent because this machine lacks its source
// address: the kernel then returns "no route".
func notOurs(from netip.Addr, sending error) error {
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

// echoer sends echo requests of one IP version, and delivers their answers.
type echoer struct {
	rawSocket
	id uint16 // unique in this process

	mu      sync.Mutex
	next    uint16           // sequence number
	waiting map[uint16]*echo // by sequence number
}

// echo is a request that waits for its reply.
type echo struct {
	to       netip.Addr
	token    uint64 // in the request and in the reply
	received chan time.Time
}

// echoID is the offset of the identifier in an ICMP echo, of IPv4 and IPv6.
const echoID = 4

// newEchoer opens the socket of an echoer. lead, if not nil, redirects its packets.
func newEchoer(six bool, id uint16, lead func(fd int) error) (*echoer, error) {
	protocol := "icmp"
	if six {
		protocol = "ipv6-icmp"
	}
	raw, err := openRaw(six, protocol, lead)
	if err != nil {
		return nil, err
	}
	// Replies to other processes are filtered out, too.
	if err := errors.Join(raw.keepICMP(ipv4.ICMPTypeEchoReply, ipv6.ICMPTypeEchoReply), raw.keep(echoID, id)); err != nil {
		raw.Close()
		return nil, err
	}
	e := &echoer{rawSocket: raw, id: id, waiting: map[uint16]*echo{}}
	go e.receive(256, e.take)
	return e, nil
}

// keepICMP makes the kernel filter out ICMP messages of other types.
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
func (e *echoer) exchange(ctx context.Context, q Question) (time.Duration, error) {
	w := &echo{to: q.target().Addr(), token: rand.Uint64(), received: make(chan time.Time, 1)}
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
	if err := e.send(packet, q.From, w.to); err != nil {
		return 0, err
	}
	select {
	case at := <-w.received:
		return at.Sub(start), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// register assigns a request a unique number.
func (e *echoer) register(w *echo) (number uint16, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for range 1 << 16 {
		e.next++
		if e.waiting[e.next] == nil {
			e.waiting[e.next] = w
			return e.next, nil
		}
	}
	return 0, fmt.Errorf("%w: %d others wait for an answer", ErrNotSent, len(e.waiting))
}

func (e *echoer) unregister(number uint16) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.waiting, number)
}

// request returns an echo request. The kernel makes the checksum of IPv6.
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

// take delivers a reply.
func (e *echoer) take(from netip.Addr, packet []byte, received time.Time) {
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
	default: // a copy
	}
}

// Sockets are shared by probers. They are opened when the first probe needs them.
type Sockets struct {
	mu         sync.Mutex
	echo       [2]*echoer     // IPv4, IPv6
	sctp       [2]*associator // IPv4, IPv6
	closed     bool
	redirected atomic.Uint32 // number of sockets redirected to a VIP
}

// identifier returns an identifier, or port, for a socket whose answers come from a VIP. No
// client's connection has the VIP as its endpoint.
func (s *Sockets) identifier() uint16 { return uint16(s.redirected.Add(1)) }

// ownIdentifier returns an identifier that no client's connection has: connections with this
// machine's own address as source get no ports that the kernel assigns to sockets, and echo
// identifiers are assigned like ports.
func ownIdentifier() (uint16, error) {
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

// socketOf returns the socket of an IP version, and opens it if it is the first.
func socketOf[T any](s *Sockets, all *[2]*T, six bool, open func(six bool, id uint16, lead func(fd int) error) (*T, error)) (*T, error) {
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
		id, err := ownIdentifier()
		if err != nil {
			return nil, err
		}
		if all[version], err = open(six, id, nil); err != nil {
			return nil, err
		}
	}
	return all[version], nil
}

// Close closes them. Later probes fail.
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
