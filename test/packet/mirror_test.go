package packet

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// mirroredPacket is a packet to a service.
const mirroredPacket = "udp 1.1.1.1:4000 > 10.0.0.1:53 len 30 ttl 9"

// mirrorCase is a mirror, and a function that returns the bytes before its copy of a frame; nil:
// none, or IPv6.
type mirrorCase struct {
	name   string
	mirror policy.Mirror
	before func(frame []byte) []byte
}

// TestMirrorFrames checks that copies have the headers of their type, followed by the packet as it
// arrived, byte by byte. It tests ERSPAN if the kernel supports it (test/kernels).
func TestMirrorFrames(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParseAddr("192.168.1.10"), netip.MustParseAddr("2001:db8:2::10")
	from4, from6 := netip.MustParseAddr("192.168.1.254"), netip.MustParseAddr("2001:db8:2::fe")
	cases := []mirrorCase{
		{"span", policy.Mirror{Port: "server"}, nil},
		{"rspan", policy.Mirror{Type: policy.RSPAN, Port: "server", VLAN: 7}, nil},
		{"vxlan", policy.Mirror{Type: policy.VXLANMirror, Remote: v4, Source: from4, TunnelID: 0xabcdef}, func(f []byte) []byte { return outer4(unix.IPPROTO_UDP, vxlan(f), f) }},
		{"vxlan6", policy.Mirror{Type: policy.VXLANMirror, Remote: v6, Source: from6, TunnelID: 5}, nil},
		{"erspan", policy.Mirror{Type: policy.ERSPAN, Remote: v4, Source: from4, TunnelID: 1023}, func(f []byte) []byte { return outer4(unix.IPPROTO_GRE, erspan(1023), f) }},
		{"erspan6", policy.Mirror{Type: policy.ERSPAN, Remote: v6, Source: from6, TunnelID: 3}, nil},
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the namespace ends with the thread
		l, err := mirrorLab()
		for _, c := range cases {
			if err != nil {
				failed <- err
				continue
			}
			failed <- checkCopies(l, c.mirror, c.before)
		}
		if l != nil {
			_ = l.Close()
		}
	}()
	for _, c := range cases {
		err := <-failed
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if errors.Is(err, unix.EOPNOTSUPP) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// mirrorLab returns a lab with a service whose packets are mirrored.
func mirrorLab() (*lab.Lab, error) {
	l, err := lab.New(lab.Config{})
	if err != nil {
		return nil, err
	}
	s, err := lb.ParseService("10.0.0.1:53/udp endpoints=192.168.1.11:5353")
	if err == nil {
		err = errors.Join(l.Apply(s), l.Attach())
	}
	return l, err
}

// checkCopies sends packets until one leaves with its copy, and compares the copy with the expected
// one. The first copies may be missing, until the neighbor is resolved.
func checkCopies(l *lab.Lab, m policy.Mirror, before func([]byte) []byte) error {
	m.Name, m.Attachment = "m", policy.Attachment{To: policy.AttachService, Name: "10.0.0.1:53/udp"}
	if err := l.MirrorTo(m); err != nil {
		return err
	}
	p, err := pkt.Parse(mirroredPacket)
	if err != nil {
		return err
	}
	frame := l.Arriving(l.Client, p).Build()
	payload := frame[len(frame)-16:]
	var left [][]byte
	sent := 0
	for ; sent < 100 && len(left) != 2; sent++ {
		if err := l.Deliver(l.Client, frame); err != nil {
			return err
		}
		if left, err = l.TakeSent(l.Server); err != nil {
			return err
		}
		left = slices.DeleteFunc(left, func(f []byte) bool { return !bytes.Contains(f, payload) }) // removes the tunnel's own IPv6 multicast packets
	}
	original := func(f []byte) bool { return bytes.Contains(f, []byte{192, 168, 1, 11}) && len(f) == len(frame) }
	if n := len(left); n != 2 || !slices.ContainsFunc(left, original) {
		return fmt.Errorf("%d frames have left: %x", n, left)
	}
	left = slices.DeleteFunc(left, original)
	if len(left) != 1 {
		return errors.New("no copy has left")
	}
	return compareCopy(m, before, frame, left[0], sent)
}

// ownPackets is the number of packets that a tunnel's device may send before the copy, such as
// router solicitations.
const ownPackets = 8

// compareCopy returns an error unless a copy is the expected one. sent is the number of packets
// sent so far.
func compareCopy(m policy.Mirror, before func([]byte) []byte, frame, got []byte, sent int) error {
	want := frame
	switch {
	case m.Type == policy.RSPAN:
		want = slices.Concat(frame[:12], []byte{0x81, 0, 0, byte(m.VLAN)}, frame[12:])
	case before != nil:
		want = before(frame)
		if len(got) != len(want) {
			break
		}
		copy(want[18:20], got[18:20]) // the kernel chooses the identification
		copy(want[24:26], got[24:26])
		if m.Type == policy.VXLANMirror {
			copy(want[34:36], got[34:36]) // ... and the port, by a hash of the packet
			copy(want[40:42], got[40:42]) // its checksum is left to the device
		} else {
			copy(want[38:42], got[38:42]) // sequence number: other packets of the device count
			if n := binary.BigEndian.Uint32(got[38:]); int(n) > sent+ownPackets {
				return fmt.Errorf("got sequence number %d, want at most %d", n, sent+ownPackets)
			}
		}
		if checksum(got[14:34]) != 0 {
			return fmt.Errorf("the outer header's checksum is wrong: %x", got[24:26])
		}
	case m.Tunneled(): // IPv6: the frame follows Ethernet, IPv6 and the type's header
		head := 14 + 40 + 16
		if m.Type == policy.ERSPAN {
			head = len(got) - len(frame) // an option with the tunnel's encapsulation limit may precede GRE
		}
		if len(got) < head || !bytes.Equal(got[12:14], []byte{0x86, 0xdd}) {
			return fmt.Errorf("not IPv6: %x", got)
		}
		if m.Type == policy.ERSPAN {
			own := slices.Clone(got[head-8 : head])
			own[2] &= 0x1f // kernels read the class of service from the copied packet as if it were IPv6
			if !bytes.Equal(own, erspanHeader(m.TunnelID)) {
				return fmt.Errorf("no ERSPAN before the copy: %x", got)
			}
		}
		got = got[head:]
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("the copy is\n%s, want\n%s", hex.Dump(got), hex.Dump(want))
	}
	return nil
}

// outer4 returns an Ethernet and an IPv4 header, followed by a tunnel's header and a frame.
func outer4(protocol byte, head, frame []byte) []byte {
	b := []byte{2, 0, 0, 0, 2, 0x10, 2, 0, 0, 0, 2, 1, 8, 0}
	ip := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 192, 168, 1, 254, 192, 168, 1, 10}
	if protocol == unix.IPPROTO_GRE {
		ip[6] = 0x40 // don't fragment
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+len(head)+len(frame)))
	return slices.Concat(b, ip, head, frame)
}

// vxlan returns UDP and VXLAN headers (RFC 7348) for a frame.
func vxlan(frame []byte) []byte {
	h := []byte{0, 0, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0xab, 0xcd, 0xef, 0}
	binary.BigEndian.PutUint16(h[4:], uint16(len(h)+len(frame)))
	return h
}

// erspan returns GRE with a sequence number, and an ERSPAN type II header
// (draft-foschiano-erspan-03, section 4.2).
func erspan(session uint32) []byte {
	return append([]byte{0x10, 0, 0x88, 0xbe, 0, 0, 0, 0}, erspanHeader(session)...)
}

// erspanHeader has version 1, the session, and the session again as its index.
func erspanHeader(session uint32) []byte {
	h := []byte{0x10, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(h[2:], uint16(session))
	binary.BigEndian.PutUint32(h[4:], session)
	return h
}
