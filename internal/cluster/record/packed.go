package record

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// A packed record is half as long as an unpacked one. Connections of a frame have few paths, so a
// record refers to its path by number once the frame has it. Numbers of TCP that usually agree take
// a byte.

// path has the common values of connections from one client network to a service.
type path struct {
	vip, endpoint netip.AddrPort
	source        netip.Addr // zero: the endpoint sees the client's address and port
}

const (
	maxPaths    = 255 // of a frame
	pathInline  = 0   // instead of a number: the path follows
	sourceKept  = 0
	sourceOther = 1
	// MaxPackedLength is the length of the longest packed record.
	MaxPackedLength = headLength + (16 + 2) + 1 + 1 + 2*(16+2) + (16 + 2) + 2*4 + 2*binary.MaxVarintLen32 + markLength
)

// Packer encodes the records of one frame.
type Packer struct{ paths map[pathKey]byte }

// pathKey is a path in one piece of memory, which maps hash several times as fast.
type pathKey [2*(16+2) + 16]byte

func (p *path) key() (k pathKey) {
	const vipPort, endpoint, endpointPort, source = 16, 18, 34, 36
	a, b, c := p.vip.Addr().As16(), p.endpoint.Addr().As16(), p.source.As16()
	copy(k[:], a[:])
	binary.BigEndian.PutUint16(k[vipPort:], p.vip.Port())
	copy(k[endpoint:], b[:])
	binary.BigEndian.PutUint16(k[endpointPort:], p.endpoint.Port())
	copy(k[source:], c[:])
	return k
}

// Append appends the record of a connection to a frame.
func (p *Packer) Append(b []byte, c *report.ConnectionCopy) []byte {
	is6 := isIPv6(c)
	b = appendHead(b, c, is6)
	b = appendAddress(b, c.Client, is6)
	b = p.appendPath(b, c, is6)
	switch c.Protocol {
	case lb.TCP:
		n := &c.Numbers
		b = binary.BigEndian.AppendUint32(b, n.Sent)
		b = binary.BigEndian.AppendUint32(b, n.ReplySent)
		b = binary.AppendVarint(b, int64(clampAhead(n.ReplyAcked-n.Sent)))
		b = binary.AppendVarint(b, int64(clampAhead(n.Acked-n.ReplySent)))
	case lb.SCTP:
		b = binary.BigEndian.AppendUint32(b, c.Numbers.Acked)
		b = binary.BigEndian.AppendUint32(b, c.Numbers.ReplyAcked)
	}
	if c.Mark != 0 {
		b = binary.BigEndian.AppendUint32(b, c.Mark)
	}
	return b
}

// appendPath appends the number of a path, or the path if the frame does not have it, and the
// source port.
func (p *Packer) appendPath(b []byte, c *report.ConnectionCopy, is6 bool) []byte {
	to := path{vip: c.VIP, endpoint: c.Endpoint}
	kind := byte(sourceKept)
	if c.Source != c.Client {
		to.source, kind = c.Source.Addr(), sourceOther
	}
	key := to.key()
	if number, known := p.paths[key]; known {
		b = append(b, number)
	} else {
		if len(p.paths) < maxPaths {
			if p.paths == nil {
				p.paths = map[pathKey]byte{}
			}
			p.paths[key] = byte(len(p.paths) + 1)
		}
		b = append(b, pathInline, kind)
		b = appendAddress(b, c.VIP, is6)
		b = appendAddress(b, c.Endpoint, is6)
		if kind == sourceOther {
			b = appendAddress(b, c.Source, is6)
			return b // with its port
		}
	}
	if kind == sourceOther {
		b = binary.BigEndian.AppendUint16(b, c.Source.Port())
	}
	return b
}

// Unpacker decodes the records of one frame.
type Unpacker struct{ paths []path }

// Decode reads the first record of b, and returns the rest.
func (u *Unpacker) Decode(b []byte) (c report.ConnectionCopy, rest []byte, err error) {
	form, sctp, rest, err := decodeHead(&c, b)
	if err != nil {
		return c, b, err
	}
	r := reader{rest: rest, is6: form&formIPv6 != 0}
	c.Client = r.address()
	if err := u.decodePath(&r, &c); err != nil {
		return report.ConnectionCopy{}, b, err
	}
	n := &c.Numbers
	if form&formTCP != 0 {
		n.Sent, n.ReplySent = r.uint32(), r.uint32()
		n.ReplyAcked, n.Acked = n.Sent+r.ahead(), n.ReplySent+r.ahead()
	}
	if sctp {
		n.Acked, n.ReplyAcked = r.uint32(), r.uint32()
	}
	if form&formMark != 0 {
		c.Mark = r.uint32()
	}
	if r.short {
		return report.ConnectionCopy{}, b, ErrShort
	}
	if err := check(&c, form); err != nil {
		return report.ConnectionCopy{}, b, err
	}
	return c, r.rest, nil
}

// decodePath reads the path and the source port of a record.
func (u *Unpacker) decodePath(r *reader, c *report.ConnectionCopy) error {
	number := int(r.byte())
	if number > len(u.paths) {
		return fmt.Errorf("%w: path %d of %d", ErrMalformed, number, len(u.paths))
	}
	var p path
	if number != pathInline {
		p = u.paths[number-1]
		c.Source = c.Client
		if p.source.IsValid() {
			c.Source = netip.AddrPortFrom(p.source, r.uint16())
		}
	} else {
		kind := r.byte()
		p.vip, p.endpoint = r.address(), r.address()
		switch kind {
		case sourceKept:
			c.Source = c.Client
		case sourceOther:
			c.Source = r.address()
			p.source = c.Source.Addr()
		default:
			return fmt.Errorf("%w: path of kind %d", ErrMalformed, kind)
		}
		if len(u.paths) < maxPaths {
			u.paths = append(u.paths, p)
		}
	}
	c.VIP, c.Endpoint = p.vip, p.endpoint
	return nil
}

// reader reads parts of a record; beyond the end they are zero, and short is set.
type reader struct {
	rest  []byte
	is6   bool
	short bool
}

var zeros [16 + 2]byte

// take returns the next n bytes, of 18 at most.
func (r *reader) take(n int) []byte {
	if len(r.rest) < n {
		r.rest, r.short = nil, true
		return zeros[:n]
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte     { return r.take(1)[0] }
func (r *reader) uint16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) uint32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }

func (r *reader) address() netip.AddrPort {
	size := 4 + 2
	if r.is6 {
		size = 16 + 2
	}
	a, _ := readAddress(r.take(size), r.is6)
	return a
}

// ahead reads how far a number is ahead of another one.
func (r *reader) ahead() uint32 {
	d, n := binary.Varint(r.rest)
	if n <= 0 || d < minAhead || d > maxAhead {
		r.rest, r.short = nil, true
		return 0
	}
	r.rest = r.rest[n:]
	return uint32(int32(d))
}
