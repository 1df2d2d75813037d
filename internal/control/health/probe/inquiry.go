package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// inquiry is a datagram from a port of its own, and its responses: answers, and ICMP errors. A
// sender of ICMP errors to all ports hits that port, too. So an error is proof only if it quotes a
// secret, which shows that its sender has seen the datagram. An error without the secret is a hint:
// some systems quote only 8 bytes (RFC 792). An error with a wrong quote is forged.
type inquiry struct {
	*net.UDPConn
	sent   []byte
	secret bool // the content is secret
	buf    [chunk]byte

	proof, hint error // the first of each
	hints       int
}

// errHint is returned by next if there is a hint, and no proof.
var errHint = errors.New("an ICMP error that may be forged")

// secretName begins a datagram without a request, as an explanation in the endpoint's logs.
const secretName = "loxilb-probe-"

// send sends a request; an empty one is replaced by a secret.
func (d *datagram) send(ctx context.Context, request string) (*inquiry, error) {
	c, err := dial(ctx, "udp", d.q)
	if err != nil {
		return nil, err
	}
	i := &inquiry{UDPConn: c.(*net.UDPConn), sent: []byte(request)}
	if request == "" {
		i.sent, i.secret = []byte(secretName+rand.Text()), true
	}
	_, err = i.Write(i.sent)
	if err != nil && i.readErrors() { // of nothing that was sent: the socket reports it in place of sending
		i.hint, i.hints = nil, 0
		_, err = i.Write(i.sent)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return i, nil
}

// next waits for an answer, or an error about the endpoint.
func (i *inquiry) next() ([]byte, error) {
	for {
		n, err := i.Read(i.buf[:])
		before := i.hints
		switch {
		case err == nil:
			return i.buf[:n], nil
		case !i.readErrors():
			return nil, err
		case i.proof != nil:
			return nil, i.proof
		case i.hints > before:
			return nil, errHint
		}
	}
}

// readErrors reads the received ICMP errors; false: there were none.
func (i *inquiry) readErrors() (some bool) {
	raw, err := i.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		var quoted, control [1024]byte
		for {
			n, size, _, _, err := unix.Recvmsg(int(fd), quoted[:], control[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
			if err != nil {
				return
			}
			if e, ok := icmpError(control[:size]); ok {
				some = true
				i.count(e, quoted[:n])
			}
		}
	})
	return some && err == nil
}

// count classifies an ICMP error by its quote of the datagram. An error about its size is no
// evidence about the endpoint.
func (i *inquiry) count(e syscall.Errno, quoted []byte) {
	n := min(len(quoted), len(i.sent))
	switch {
	case e == syscall.EMSGSIZE || !bytes.Equal(quoted[:n], i.sent[:n]):
	case i.secret && n == len(i.sent):
		if i.proof == nil {
			i.proof = e
		}
	default:
		if i.hints++; i.hint == nil {
			i.hint = e
		}
	}
}

// icmpError returns the error of a message in a socket's error queue, if ICMP has reported it.
func icmpError(control []byte) (syscall.Errno, bool) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, false
	}
	for _, m := range messages {
		four := m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_RECVERR
		six := m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_RECVERR
		var e unix.SockExtendedErr
		if _, err := binary.Decode(m.Data, binary.NativeEndian, &e); !four && !six || err != nil {
			continue
		}
		return syscall.Errno(e.Errno), e.Origin == unix.SO_EE_ORIGIN_ICMP || e.Origin == unix.SO_EE_ORIGIN_ICMP6
	}
	return 0, false
}
