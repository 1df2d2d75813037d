package netlink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// batchBytes bounds the requests of one sendmsg: its acknowledgements must fit into the
	// receive buffer.
	batchBytes = 16 << 10
	// batchSlice is the number of requests sent before the context is checked.
	batchSlice   = 512
	receiveBytes = 64 << 10
	// answerTimeout only guards against a wait that would never end: the kernel answers within
	// the send.
	answerTimeout = 10 * time.Second
)

var (
	errDumpInterrupted = errors.New("dump interrupted by a change")
	errEnough          = errors.New("the rest of the table is not wanted")
	errNoHost          = errors.New("the route does not lead to a single host")
)

// Conn is a request socket in a namespace. A failing socket is closed, and the next request opens
// another one, so a retry needs no new Conn. Not safe for concurrent use.
type Conn struct {
	ns     *Namespace
	family int
	fd     int // -1: to be opened
	closed bool
	seq    uint32
	buf    []byte
}

// Dial opens a request socket of rtnetlink.
func (n *Namespace) Dial() (*Conn, error) { return n.dial(unix.NETLINK_ROUTE) }

// DialGeneric opens a request socket of generic netlink.
func (n *Namespace) DialGeneric() (*Conn, error) { return n.dial(unix.NETLINK_GENERIC) }

// DialIPsec opens a request socket of xfrm. EPROTONOSUPPORT: the kernel has none.
func (n *Namespace) DialIPsec() (*Conn, error) { return n.dial(unix.NETLINK_XFRM) }

func (n *Namespace) dial(family int) (*Conn, error) {
	c := &Conn{ns: n, family: family, fd: -1, buf: make([]byte, receiveBytes)}
	return c, c.open()
}

func (c *Conn) open() error {
	if c.closed {
		return errors.New("netlink socket was closed")
	}
	if c.fd >= 0 {
		return nil
	}
	err := c.ns.Do(func() (err error) {
		c.fd, err = openSocket(c.family, 0)
		return err
	})
	if err != nil {
		return err
	}
	timeout := unix.NsecToTimeval(int64(answerTimeout))
	_ = unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
	_ = unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	_ = unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	setReceiveBuffer(c.fd, 1<<20)
	return nil
}

func openSocket(family, flags int) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|flags, family)
	if err != nil {
		return -1, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("bind netlink socket: %w", err)
	}
	return fd, nil
}

func setReceiveBuffer(fd, bytes int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
	}
}

// Close closes the socket. It does nothing if c is nil.
func (c *Conn) Close() error {
	if c == nil {
		return nil
	}
	c.closed = true
	return c.drop()
}

func (c *Conn) drop() error {
	if c.fd < 0 {
		return nil
	}
	fd := c.fd
	c.fd = -1
	return unix.Close(fd)
}

// fail closes a failing socket, and returns its error.
func (c *Conn) fail(err error) error { return errors.Join(err, c.drop()) }

func (c *Conn) send(b []byte) error {
	if err := c.open(); err != nil {
		return err
	}
	if err := unix.Sendto(c.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return c.fail(fmt.Errorf("send to the kernel: %w", err))
	}
	return nil
}

func (c *Conn) receive(each func(Message) error) error {
	n, err := unix.Read(c.fd, c.buf)
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	if err != nil {
		return c.fail(fmt.Errorf("receive from the kernel: %w", err))
	}
	if err := split(c.buf[:n], each); err != nil {
		return c.fail(err)
	}
	return nil
}

// Batch sends all requests, many in one system call, and calls done once for each, in order: with
// the kernel's verdict and, for a request that fetches something, the answer (valid during the
// call). The returned error is the socket's or the context's; a request without a call of done may
// have been carried out or not.
func (c *Conn) Batch(ctx context.Context, requests []*Request, done func(i int, answer []byte, err error)) error {
	for start := 0; start < len(requests); start += batchSlice {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.sendSlice(requests, start, min(start+batchSlice, len(requests)), done); err != nil {
			return err
		}
	}
	return nil
}

func (c *Conn) sendSlice(requests []*Request, start, limit int, done func(int, []byte, error)) error {
	for start < limit {
		first := c.seq + 1
		var out []byte
		end := start
		for end < limit && len(out) < batchBytes {
			r := requests[end]
			if !r.isAnswered { // its answer would be followed by an acknowledgement
				flags := binary.NativeEndian.Uint16(r.b[6:])
				binary.NativeEndian.PutUint16(r.b[6:], flags|unix.NLM_F_ACK)
			}
			c.seq++
			out = append(out, r.seal(c.seq)...)
			end++
		}
		if err := c.send(out); err != nil {
			return err
		}
		if err := c.collect(requests[start:end], start, first, done); err != nil {
			return err
		}
		start = end
	}
	return nil
}

// collect receives the kernel's answers to the requests, which begin at start and at number first.
func (c *Conn) collect(requests []*Request, start int, first uint32, done func(int, []byte, error)) error {
	var answer []byte
	for next := 0; next < len(requests); {
		err := c.receive(func(m Message) error {
			if m.seq < first || next == len(requests) || int(m.seq-first) != next {
				return nil // left over from a request that timed out
			}
			switch {
			case m.Type == unix.NLMSG_ERROR:
				done(start+next, answer, m.verdict())
			case requests[next].isAnswered:
				done(start+next, m.Body, nil)
			default:
				answer = append(answer[:0], m.Body...)
				return nil
			}
			answer = answer[:0]
			next++
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// One sends a single request and returns the kernel's answer to it.
func (c *Conn) One(r *Request) ([]byte, error) {
	var out []byte
	var verdict error
	err := c.sendSlice([]*Request{r}, 0, 1, func(_ int, answer []byte, err error) {
		out, verdict = append(out, answer...), err
	})
	return out, errors.Join(err, verdict)
}

// Dump requests a whole table and calls each for every message of it. A table that changed
// meanwhile is requested again, a few times: each may then see an object twice.
func (c *Conn) Dump(typ uint16, header []byte, each func(Message)) error {
	for range 5 {
		err := c.dumpOnce(NewRequest(typ, unix.NLM_F_DUMP, header), func(m Message) error {
			each(m)
			return nil
		})
		if !errors.Is(err, errDumpInterrupted) {
			return err
		}
	}
	// Five dumps of a table that changes have every object in at least one; subscribers get the
	// changes.
	return nil
}

// Stream requests a table and yields each message of it once, until yield returns false, after
// which the connection cannot be used any more. An object that changed meanwhile may be missing.
func (c *Conn) Stream(typ uint16, header []byte, yield func(Message) bool) error {
	err := c.dumpOnce(NewRequest(typ, unix.NLM_F_DUMP, header), func(m Message) error {
		if !yield(m) {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errDumpInterrupted) || errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (c *Conn) dumpOnce(r *Request, each func(Message) error) error {
	c.seq++
	seq := c.seq
	if err := c.send(r.seal(seq)); err != nil {
		return err
	}
	var ended, interrupted bool
	var verdict error
	for !ended {
		err := c.receive(func(m Message) error {
			if m.seq != seq {
				return nil
			}
			interrupted = interrupted || m.Flags&unix.NLM_F_DUMP_INTR != 0
			switch m.Type {
			case unix.NLMSG_DONE:
				ended = true
			case unix.NLMSG_ERROR:
				ended, verdict = true, m.verdict()
			default:
				return each(m)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if verdict == nil && interrupted {
		return errDumpInterrupted
	}
	return verdict
}
