package probe

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Connector checks whether endpoints accept TCP connections, thousands at a time without a
// goroutine for each. One goroutine calls Start, and periodically Collect; the other methods are
// safe for concurrent use.
//
// A Connector does not complete the handshake: the SYN+ACK shows that the endpoint accepts, and the
// reply is a RST instead of the ACK (disabling TCP_QUICKACK delays the ACK, and disconnecting sends
// the RST). So the endpoint's program does not accept and log an empty connection, and neither side
// keeps a port in TIME_WAIT.
//
// Sockets of accepted connections are reused: disconnecting and reconnecting a socket costs half as
// much as closing it and opening another. Failed ones are closed: over IPv4 the kernel keeps an
// ICMP error in the socket's error queue, and epoll reports it until it is read, even during later
// connections.
type Connector struct {
	epoll int

	mu     sync.Mutex
	open   map[int32]*Attempt  // by descriptor
	expiry Queue[*Attempt]     // of timeouts
	idle   map[socketKey][]int // descriptors kept for reuse
	nIdle  int                 // number of descriptors in idle
	closed bool
}

// socketKey is what sockets must have in common to be interchangeable.
type socketKey struct {
	six  bool       // IPv6
	from netip.Addr // source address; zero: the kernel's choice
}

// maxIdle is the number of sockets kept for reuse.
const maxIdle = 1024

// Attempt is a connection attempt in progress.
type Attempt struct {
	QueueItem // when it times out
	spec      Spec
	fd        int
	start     time.Time
	done      func(Answer, error)
}

// Due implements Queue.
func (a *Attempt) Due() *QueueItem { return &a.QueueItem }

// NewConnector returns a Connector without attempts.
func NewConnector() (*Connector, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("wait for connections: %w", err)
	}
	return &Connector{epoll: epoll, open: map[int32]*Attempt{}, idle: map[socketKey][]int{}}, nil
}

// Start sends a SYN. Collect later calls done, once, or never if the attempt is cancelled.
func (c *Connector) Start(spec Spec, done func(Answer, error)) (*Attempt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, shorten(spec, net.ErrClosed)
	}
	fd, err := c.socket(spec)
	if err != nil {
		return nil, shorten(spec, err)
	}
	a := &Attempt{spec: spec, fd: fd, start: time.Now(), done: done}
	if err := a.connect(); err != nil {
		unix.Close(fd)
		return nil, shorten(spec, err)
	}
	c.open[int32(fd)] = a
	c.expiry.Push(a, a.start.Add(spec.Probe.Timeout))
	return a, nil
}

// socket returns an unconnected socket. It is registered with epoll, which reports each of its
// connections once.
func (c *Connector) socket(spec Spec) (fd int, err error) {
	o := socketKey{spec.target().Addr().Is6(), spec.From}
	if idle := c.idle[o]; len(idle) > 0 && spec.Redirect == nil {
		c.idle[o] = idle[:len(idle)-1]
		c.nIdle--
		return idle[len(idle)-1], nil
	}
	family := unix.AF_INET
	if o.six {
		family = unix.AF_INET6
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, err
	}
	if err := c.prepare(fd, spec); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (c *Connector) prepare(fd int, spec Spec) error {
	if err := setOptions(fd, spec); err != nil {
		return err
	}
	if spec.From.IsValid() {
		if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(spec.From, 0))); err != nil {
			return err
		}
	}
	return unix.EpollCtl(c.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLOUT | unix.EPOLLET, Fd: int32(fd)})
}

func (a *Attempt) connect() error {
	if err := unix.SetsockoptInt(a.fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0); err != nil {
		return err
	}
	if err := unix.Connect(a.fd, sockaddr(a.spec.target())); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	return nil
}

// disconnect ends a socket's connection. It sends a RST if the endpoint has answered.
func disconnect(fd int) error {
	none := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(none)); errno != 0 {
		return errno
	}
	return nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// Cancel cancels an attempt. It returns false if the attempt has ended already: then done was
// called, or is about to be.
func (c *Connector) Cancel(a *Attempt) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.close(a, false)
}

// close removes an attempt, and keeps its socket for reuse if the endpoint has accepted. It returns
// false if the attempt was removed already.
func (c *Connector) close(a *Attempt, accepted bool) bool {
	if c.open[int32(a.fd)] != a {
		return false
	}
	delete(c.open, int32(a.fd))
	c.expiry.Remove(a)
	if err := disconnect(a.fd); err != nil || !accepted || a.spec.Redirect != nil || c.nIdle == maxIdle {
		unix.Close(a.fd)
		return true
	}
	o := socketKey{a.spec.target().Addr().Is6(), a.spec.From}
	c.idle[o] = append(c.idle[o], a.fd)
	c.nIdle++
	return true
}

// Idle returns the number of sockets kept for reuse.
func (c *Connector) Idle() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nIdle
}

// DropIdle closes one of the idle sockets.
func (c *Connector) DropIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o, idle := range c.idle {
		if n := len(idle); n > 0 {
			unix.Close(idle[n-1])
			c.idle[o] = idle[:n-1]
			c.nIdle--
			return
		}
	}
}

// Running returns the number of attempts.
func (c *Connector) Running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// Collect reports the attempts that were answered, then those that timed out.
func (c *Connector) Collect() {
	var events [256]unix.EpollEvent
	for {
		n, err := unix.EpollWait(c.epoll, events[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		for _, e := range events[:max(0, n)] {
			c.handleEvent(e)
		}
		if n < len(events) {
			break
		}
	}
	now := time.Now()
	for {
		c.mu.Lock()
		a, ok := c.expiry.Pop(now)
		if ok {
			c.close(a, false)
		}
		c.mu.Unlock()
		if !ok {
			return
		}
		a.done(Answer{}, timeoutError(a.spec))
	}
}

func (c *Connector) handleEvent(e unix.EpollEvent) {
	c.mu.Lock()
	a := c.open[e.Fd]
	if a == nil {
		c.mu.Unlock()
		return
	}
	delay, err := a.outcome(e.Events)
	c.close(a, err == nil)
	c.mu.Unlock()
	if err != nil {
		a.done(Answer{}, shorten(a.spec, err))
		return
	}
	a.done(Answer{What: "accepts connections", Delay: delay}, nil)
}

// outcome reads the result of an attempt from its socket. The delay is the kernel's measurement, so
// it is right even if Collect is called late.
func (a *Attempt) outcome(events uint32) (delay time.Duration, err error) {
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		errno, err := unix.GetsockoptInt(a.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && errno != 0 {
			err = syscall.Errno(errno)
		}
		if err == nil {
			err = unix.ECONNRESET
		}
		return 0, err
	}
	info, err := unix.GetsockoptTCPInfo(a.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, err
	}
	if info.Rtt == 0 || info.Total_retrans > 0 {
		return time.Since(a.start), nil
	}
	return time.Duration(info.Rtt) * time.Microsecond, nil
}

// Close cancels all attempts, and prevents new ones.
func (c *Connector) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.open {
		c.close(a, false)
	}
	for _, idle := range c.idle {
		for _, fd := range idle {
			unix.Close(fd)
		}
	}
	c.closed = true
	return unix.Close(c.epoll)
}
