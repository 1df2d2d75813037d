// Package netlink talks to the kernel of one network namespace: messages, request sockets that send
// many requests in one system call, dumps of whole tables, and sockets that receive changes.
//
// netdev/objects uses vishvananda/netlink, which does not know IFA_PROTO and NDA_PROTOCOL, waits
// for the kernel after each request, and reads routes only as a whole.
package netlink

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// OwnProtocol marks every address (IFA_PROTO), route (rtm_protocol) and neighbour (NDA_PROTOCOL)
// that the load balancer put into the kernel. `ip -d address` shows it as "proto 108". The kernel
// itself uses 1 to 3, routing daemons numbers above 185.
const OwnProtocol = 108

// Numbers of the kernel's uapi that x/sys/unix does not have.
const (
	IFAProto      = 11 // IFA_PROTO, 5.18
	NDAProtocol   = 12 // NDA_PROTOCOL, 4.20
	NDAFlagsExt   = 15 // NDA_FLAGS_EXT, 5.16
	NTFExtManaged = 1  // NTF_EXT_MANAGED, 5.16

	nlaTypeMask = 0x3fff // NLA_TYPE_MASK
)

const headerBytes = unix.SizeofNlMsghdr

// Request is a message to the kernel under construction. Numbers are in host byte order.
type Request struct {
	b          []byte
	isAnswered bool // the kernel answers it by one message, or by an error
}

// NewRequest starts a message. typ is RTM_*; flags are NLM_F_*, and NLM_F_REQUEST is added; header
// is the fixed part.
func NewRequest(typ, flags uint16, header []byte) *Request {
	b := make([]byte, headerBytes, headerBytes+len(header)+64)
	binary.NativeEndian.PutUint16(b[4:], typ)
	binary.NativeEndian.PutUint16(b[6:], flags|unix.NLM_F_REQUEST)
	return &Request{b: append(b, header...)}
}

// Attr appends an attribute.
func (r *Request) Attr(typ uint16, value []byte) *Request {
	r.b = binary.NativeEndian.AppendUint16(r.b, uint16(unix.SizeofRtAttr+len(value)))
	r.b = binary.NativeEndian.AppendUint16(r.b, typ)
	r.b = append(r.b, value...)
	for len(r.b)%4 != 0 {
		r.b = append(r.b, 0)
	}
	return r
}

// Attr32 appends an attribute that is a number.
func (r *Request) Attr32(typ uint16, value uint32) *Request {
	return r.Attr(typ, binary.NativeEndian.AppendUint32(nil, value))
}

// Answered marks a request that the kernel answers by one message, or by an error.
func (r *Request) Answered() *Request {
	r.isAnswered = true
	return r
}

// Body returns the fixed part and the attributes, such as for the header of a dump.
func (r *Request) Body() []byte { return r.b[headerBytes:] }

func (r *Request) seal(seq uint32) []byte {
	binary.NativeEndian.PutUint32(r.b[0:], uint32(len(r.b)))
	binary.NativeEndian.PutUint32(r.b[8:], seq)
	return r.b
}

// Message is one message of the kernel. Body includes the fixed header of its type, and is valid
// until the next receive.
type Message struct {
	Type  uint16
	Flags uint16
	Body  []byte

	seq uint32
}

func split(b []byte, each func(Message) error) error {
	for len(b) >= headerBytes {
		size := int(binary.NativeEndian.Uint32(b))
		if size < headerBytes || size > len(b) {
			return errors.New("netlink message of impossible size")
		}
		m := Message{
			Type:  binary.NativeEndian.Uint16(b[4:]),
			Flags: binary.NativeEndian.Uint16(b[6:]),
			seq:   binary.NativeEndian.Uint32(b[8:]),
			Body:  b[headerBytes:size],
		}
		if err := each(m); err != nil {
			return err
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return nil
}

// verdict returns the kernel's answer to a request: nil, or a unix.Errno.
func (m Message) verdict() error {
	if len(m.Body) < 4 {
		return errors.New("netlink error message cut short")
	}
	if code := int32(binary.NativeEndian.Uint32(m.Body)); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// Attributes calls each for every attribute of a message body behind its fixed header.
func Attributes(body []byte, header int, each func(typ uint16, value []byte)) {
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

// Uint32 reads the value of an attribute; 0 if it is too short.
func Uint32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

// Family returns the address family, AF_INET or AF_INET6.
func Family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// Header returns a fixed header of the size that has only a family.
func Header(family byte, size int) []byte {
	h := make([]byte, size)
	h[0] = family
	return h
}
