package netdev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Our own rtnetlink, about 200 lines: the netlink libraries at hand have neither IFA_PROTO nor NDA_PROTOCOL, take one
// round trip a change where 10,000 VIPs want a batch, and their subscriptions end at the first overrun.

// Owner marks every address (IFA_PROTO) and neighbour (NDA_PROTOCOL) that the load balancer put into the kernel.
// `ip -d address` shows it as "proto 108". The kernel itself uses 1 to 3, routing daemons numbers above 185.
const Owner = 108

// Numbers of the kernel's uapi that x/sys/unix does not have.
const (
	ifaProto      = 11 // IFA_PROTO, 5.18
	ndaProtocol   = 12 // NDA_PROTOCOL, 4.20
	ndaFlagsExt   = 15 // NDA_FLAGS_EXT, 5.16
	ntfExtManaged = 1  // NTF_EXT_MANAGED, 5.16

	nlaTypeMask = 0x3fff // NLA_TYPE_MASK
)

const (
	nlmsgHeader = unix.SizeofNlMsghdr
	// batchBytes bounds what one sendmsg carries: its acknowledgements have to fit the receive buffer.
	batchBytes = 16 << 10
	replyBytes = 64 << 10
)

var errDumpInterrupted = errors.New("dump interrupted by a change")

// request is one rtnetlink message under construction. Attributes are in host byte order unless said otherwise.
type request struct {
	b []byte
}

// newRequest starts a message: typ is RTM_*, flags NLM_F_* (NLM_F_REQUEST is added), header the fixed part.
func newRequest(typ, flags uint16, header []byte) *request {
	b := make([]byte, nlmsgHeader, nlmsgHeader+len(header)+64)
	binary.NativeEndian.PutUint16(b[4:], typ)
	binary.NativeEndian.PutUint16(b[6:], flags|unix.NLM_F_REQUEST)
	return &request{b: append(b, header...)}
}

func (r *request) attr(typ uint16, value []byte) *request {
	r.b = binary.NativeEndian.AppendUint16(r.b, uint16(unix.SizeofRtAttr+len(value)))
	r.b = binary.NativeEndian.AppendUint16(r.b, typ)
	r.b = append(r.b, value...)
	for len(r.b)%4 != 0 {
		r.b = append(r.b, 0)
	}
	return r
}

func (r *request) attr32(typ uint16, value uint32) *request {
	return r.attr(typ, binary.NativeEndian.AppendUint32(nil, value))
}

func (r *request) seal(seq uint32) []byte {
	binary.NativeEndian.PutUint32(r.b[0:], uint32(len(r.b)))
	binary.NativeEndian.PutUint32(r.b[8:], seq)
	return r.b
}

// reply is one message of the kernel; body includes the fixed header of its type.
type reply struct {
	typ   uint16
	flags uint16
	seq   uint32
	body  []byte // valid until the next receive
}

// conn is a request socket of one namespace. Not safe for concurrent use.
type conn struct {
	fd  int
	seq uint32
	buf []byte
}

// dial opens a request socket of rtnetlink in the namespace.
func (n *namespace) dial() (*conn, error) { return n.dialFamily(unix.NETLINK_ROUTE) }

func (n *namespace) dialFamily(family int) (*conn, error) {
	c := &conn{fd: -1, buf: make([]byte, replyBytes)}
	err := n.do(func() (err error) {
		c.fd, err = netlinkSocket(family, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	// The kernel answers within the send; the timeout only guards against a wait that would never end.
	tv := unix.NsecToTimeval(int64(10 * time.Second))
	_ = unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	_ = unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	_ = unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	setReceiveBuffer(c.fd, 1<<20)
	return c, nil
}

func netlinkSocket(family, flags int) (int, error) {
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

func (c *conn) close() error { return unix.Close(c.fd) }

func (c *conn) receive(each func(reply) error) error {
	n, _, err := unix.Recvfrom(c.fd, c.buf, 0)
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("receive from rtnetlink: %w", err)
	}
	return splitReplies(c.buf[:n], each)
}

func splitReplies(b []byte, each func(reply) error) error {
	for len(b) >= nlmsgHeader {
		size := int(binary.NativeEndian.Uint32(b))
		if size < nlmsgHeader || size > len(b) {
			return errors.New("rtnetlink message of impossible size")
		}
		r := reply{
			typ:   binary.NativeEndian.Uint16(b[4:]),
			flags: binary.NativeEndian.Uint16(b[6:]),
			seq:   binary.NativeEndian.Uint32(b[8:]),
			body:  b[nlmsgHeader:size],
		}
		if err := each(r); err != nil {
			return err
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return nil
}

func (r reply) errno() error {
	if len(r.body) < 4 {
		return errors.New("rtnetlink error message cut short")
	}
	if code := int32(binary.NativeEndian.Uint32(r.body)); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// batch sends all requests, many in one system call, and calls done once for each, in order: with the kernel's verdict
// and, for a request that fetches something, the answer (valid during the call). The returned error is the socket's.
func (c *conn) batch(requests []*request, done func(i int, answer []byte, err error)) error {
	for start := 0; start < len(requests); {
		first := c.seq + 1
		var out []byte
		end := start
		for end < len(requests) && len(out) < batchBytes {
			r := requests[end]
			flags := binary.NativeEndian.Uint16(r.b[6:])
			binary.NativeEndian.PutUint16(r.b[6:], flags|unix.NLM_F_ACK)
			c.seq++
			out = append(out, r.seal(c.seq)...)
			end++
		}
		to := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
		if err := unix.Sendto(c.fd, out, 0, to); err != nil {
			return fmt.Errorf("send to rtnetlink: %w", err)
		}
		if err := c.collect(start, end, first, done); err != nil {
			return err
		}
		start = end
	}
	return nil
}

func (c *conn) collect(start, end int, first uint32, done func(int, []byte, error)) error {
	var answer []byte
	for next := start; next < end; {
		err := c.receive(func(r reply) error {
			at := start + int(r.seq-first)
			if r.seq < first || at != next {
				return nil // left over from a request that timed out
			}
			if r.typ != unix.NLMSG_ERROR {
				answer = append(answer[:0], r.body...)
				return nil
			}
			done(at, answer, r.errno())
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

// one sends a single request and returns the kernel's answer to it.
func (c *conn) one(r *request) ([]byte, error) {
	var out []byte
	var verdict error
	err := c.batch([]*request{r}, func(_ int, answer []byte, err error) {
		out, verdict = append(out, answer...), err
	})
	return out, errors.Join(err, verdict)
}

// dump asks for a whole table and calls each for every message of it. A table that changed meanwhile is asked for
// again, a few times: each may then see an object twice.
func (c *conn) dump(typ uint16, header []byte, each func(reply) error) error {
	for range 5 {
		err := c.dumpOnce(newRequest(typ, unix.NLM_F_DUMP, header), each)
		if !errors.Is(err, errDumpInterrupted) {
			return err
		}
	}
	// What a busy table shows in five dumps is all there; what changed meanwhile comes by the watch.
	return nil
}

func (c *conn) dumpOnce(r *request, each func(reply) error) error {
	c.seq++
	seq := c.seq
	if err := unix.Sendto(c.fd, r.seal(seq), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send to rtnetlink: %w", err)
	}
	var ended, interrupted bool
	var verdict error
	for !ended {
		err := c.receive(func(r reply) error {
			if r.seq != seq {
				return nil
			}
			interrupted = interrupted || r.flags&unix.NLM_F_DUMP_INTR != 0
			switch r.typ {
			case unix.NLMSG_DONE:
				ended = true
				return nil
			case unix.NLMSG_ERROR:
				ended, verdict = true, r.errno()
				return nil
			}
			if verdict == nil {
				verdict = each(r)
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

// attributes calls each for every attribute of a message body behind its fixed header.
func attributes(body []byte, header int, each func(typ uint16, value []byte)) {
	if len(body) < header {
		return
	}
	for b := body[header:]; len(b) >= unix.SizeofRtAttr; {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return
		}
		each(binary.NativeEndian.Uint16(b[2:])&nlaTypeMask, b[unix.SizeofRtAttr:size])
		b = b[min(len(b), (size+3)&^3):]
	}
}

func u32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}
