package lab

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath"
	"loxilb/internal/pkt"
)

// Live sending: the program is attached, and the lab writes packets to tap interfaces and reads the
// packets that leave from them. This covers cases that BPF_PROG_TEST_RUN does not: truncated
// frames, VLAN tags that the kernel has removed, partial checksums, unsegmented GSO packets,
// nonlinear packets and the kernel's neighbor queue. A passed packet is not visible: the lab
// assumes that a packet without any other effect has passed.
//
// The kernel handles the packet within the write, so there is nothing to wait for.

// Attach attaches the program to both interfaces.
func (l *Lab) Attach() error {
	for _, link := range []*Link{l.Client, l.Server} {
		if err := l.Datapath.Attach(datapath.Interface{Index: link.Index, Name: link.Name}); err != nil {
			return err
		}
		if _, err := link.read(); err != nil { // discard packets that the kernel has sent when the link came up
			return err
		}
	}
	return nil
}

// detach detaches the program from both interfaces.
func (l *Lab) detach() error {
	return errors.Join(l.Datapath.Detach(l.Client.Index), l.Datapath.Detach(l.Server.Index))
}

// Deliver lets a frame arrive at a link, as a device without offloads delivers it.
func (n *Network) Deliver(link *Link, frame []byte) error { return link.write(virtio{}, frame) }

// TakeSent returns the frames that have left through a link since the last call.
func (n *Network) TakeSent(link *Link) ([][]byte, error) {
	sent, err := link.read()
	var frames [][]byte
	for _, s := range sent {
		frames = append(frames, s.frame)
	}
	return frames, err
}

// virtio is struct virtio_net_hdr, which precedes each frame.
type virtio struct {
	flags, gsoType                        uint8
	headLen, gsoSize, sumStart, sumOffset uint16
}

const (
	virtioSize     = 10
	virtioNeedsSum = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM
	virtioTCP4     = 1 // VIRTIO_NET_HDR_GSO_TCPV4
	virtioTCP6     = 4 // VIRTIO_NET_HDR_GSO_TCPV6
)

func (v virtio) bytes() []byte {
	b := []byte{v.flags, v.gsoType}
	for _, n := range []uint16{v.headLen, v.gsoSize, v.sumStart, v.sumOffset} {
		b = binary.NativeEndian.AppendUint16(b, n)
	}
	return b
}

// offload returns the virtio header for p's offloads: partial checksum, segments, bytes in the
// linear part.
func offload(p *pkt.Packet) virtio {
	var v virtio
	if p.Value(pkt.Sum).Text == "partial" {
		v.flags, v.sumStart, v.sumOffset = virtioNeedsSum, uint16(p.Offset()), 16
		if p.Proto == pkt.UDP {
			v.sumOffset = 6
		}
	}
	if p.Has(pkt.GSO) {
		v.gsoSize, v.gsoType = uint16(p.Num(pkt.GSO)), virtioTCP4
		if p.Is6() {
			v.gsoType = virtioTCP6
		}
		v.headLen = uint16(len(p.Build()) - int(p.Num(pkt.Len)))
	}
	if p.Has(pkt.Head) {
		v.headLen = uint16(p.Num(pkt.Head))
	}
	return v
}

// SendLive lets a packet arrive at the link.
func (l *Lab) SendLive(link *Link, p *pkt.Packet) (Result, error) {
	frame := p.Build()
	if err := link.write(offload(p), frame); err != nil {
		return Result{}, err
	}
	var sent []sentFrame
	for _, link := range []*Link{l.Client, l.Server} {
		more, err := link.read()
		if err != nil {
			return Result{}, err
		}
		sent = append(sent, more...)
	}
	reason, err := l.Counted()
	if err != nil {
		return Result{}, err
	}
	res := Result{Verdict: "pass", Reason: reason, Frame: frame}
	switch {
	case len(sent) > 1:
		return res, fmt.Errorf("%d packets left", len(sent))
	case len(sent) == 1:
		res.Verdict, res.Frame = "out", sent[0].frame
		return res, sameOffload(offload(p), sent[0].virtio, pkt.Decode(res.Frame))
	case reason != "":
		res.Verdict = "drop"
	}
	return res, nil
}

// sameOffload returns an error unless the packet that left has the offloads of the packet that
// arrived, adapted to its IP version.
func sameOffload(in, out virtio, left *pkt.Packet) error {
	if in.gsoType == virtioTCP4 || in.gsoType == virtioTCP6 {
		in.gsoType = virtioTCP4
		if left.Is6() {
			in.gsoType = virtioTCP6
		}
	}
	start := left.Offset()
	if (left.Proto == pkt.ICMP || left.Proto == pkt.ICMP6) && left.Inner != nil { // the quoted packet's checksum stays open
		in.gsoType, in.gsoSize = 0, 0
		start += 8 + left.Inner.Offset() - 14
	}
	if out.flags&virtioNeedsSum != 0 && int(out.sumStart) != start {
		return fmt.Errorf("open checksum: from byte %d on when it left, want %d", out.sumStart, start)
	}
	if in.flags&virtioNeedsSum != out.flags&virtioNeedsSum {
		return fmt.Errorf("open checksum: %v when it came in, %v when it left", in.flags&virtioNeedsSum != 0, out.flags&virtioNeedsSum != 0)
	}
	if data := max(len(left.Value(pkt.Data).Text), int(left.Num(pkt.Len))); out.gsoType == 0 && data <= int(in.gsoSize) {
		return nil // the program has cut its data to one segment (bpf/proxy/segment.h)
	}
	if in.gsoType != out.gsoType || in.gsoSize != out.gsoSize {
		return fmt.Errorf("segments: type %d, size %d when it came in, type %d, size %d when it left",
			in.gsoType, in.gsoSize, out.gsoType, out.gsoSize)
	}
	return nil
}

type sentFrame struct {
	virtio
	frame []byte
}

func (l *Link) write(v virtio, frame []byte) error {
	_, err := unix.Write(l.fd, append(v.bytes(), frame...))
	if err != nil {
		return fmt.Errorf("write to %s: %w", l.Name, err)
	}
	return nil
}

// read returns the frames that have left through the link, except for the kernel's own multicast
// group messages.
func (l *Link) read() ([]sentFrame, error) {
	var all []sentFrame
	if l.buf == nil {
		l.buf = make([]byte, virtioSize+1<<17)
	}
	buf := l.buf
	for {
		n, err := unix.Read(l.fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			return all, nil
		}
		if err != nil {
			return all, fmt.Errorf("read from %s: %w", l.Name, err)
		}
		if n < virtioSize {
			continue
		}
		f := sentFrame{frame: append([]byte(nil), buf[virtioSize:n]...)}
		f.flags, f.gsoType = buf[0], buf[1]
		f.gsoSize, f.sumStart = binary.NativeEndian.Uint16(buf[4:]), binary.NativeEndian.Uint16(buf[6:])
		const mldReport = 143
		if p := pkt.Decode(f.frame); p.Proto == pkt.ICMP6 && p.Num(pkt.Type) == mldReport {
			continue
		}
		all = append(all, f)
	}
}
