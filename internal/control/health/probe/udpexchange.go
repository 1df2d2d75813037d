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

// udpExchange is a UDP socket with a port of its own that has sent one datagram, and receives the
// responses: answers, and ICMP errors.
//
// An attacker who sends ICMP errors to all ports also hits this one. So an ICMP error is proof only
// if it quotes a secret, which shows that its sender has received the datagram. An error without
// the secret is a hint: some systems quote only 8 bytes (RFC 792). An error that quotes other
// content is forged, and ignored.
type udpExchange struct {
	*net.UDPConn
	sent   []byte
	secret bool // sent is a secret, not a request that an attacker may know
	buf    [chunk]byte

	proof, hint error // the first error of each kind
	hints       int   // number of hints
}

// errHint is returned by next if there was a hint, and no proof.
var errHint = errors.New("an ICMP error that may be forged")

// secretName is the beginning of a secret. It identifies the sender in the endpoint's logs.
const secretName = "loxilb-probe-"

// send sends a request, or a secret if the request is empty.
func (d *udpProber) send(ctx context.Context, request string) (*udpExchange, error) {
	c, err := dial(ctx, "udp", d.spec)
	if err != nil {
		return nil, err
	}
	i := &udpExchange{UDPConn: c.(*net.UDPConn), sent: []byte(request)}
	if request == "" {
		i.sent, i.secret = []byte(secretName+rand.Text()), true
	}
	_, err = i.Write(i.sent)
	// Before anything was sent, an ICMP error can only be forged. The socket reports it instead
	// of sending: discard it, and send again.
	if err != nil && i.readErrors() {
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
func (i *udpExchange) next() ([]byte, error) {
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

// readErrors reads the ICMP errors that the socket has received, and reports whether there were
// any.
func (i *udpExchange) readErrors() (found bool) {
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
				found = true
				i.classify(e, quoted[:n])
			}
		}
	})
	return found && err == nil
}

// classify records an ICMP error as a proof, a hint, or neither, by its quote of the datagram. An
// error about the datagram's size is no evidence about the endpoint.
func (i *udpExchange) classify(e syscall.Errno, quoted []byte) {
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

// icmpError returns the error in the control data of a socket's error queue; false: there is none,
// or it does not come from ICMP.
func icmpError(control []byte) (syscall.Errno, bool) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, false
	}
	for _, m := range messages {
		isIPv4 := m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_RECVERR
		isIPv6 := m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_RECVERR
		var e unix.SockExtendedErr
		if _, err := binary.Decode(m.Data, binary.NativeEndian, &e); !isIPv4 && !isIPv6 || err != nil {
			continue
		}
		return syscall.Errno(e.Errno), e.Origin == unix.SO_EE_ORIGIN_ICMP || e.Origin == unix.SO_EE_ORIGIN_ICMP6
	}
	return 0, false
}
