package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// rawSocket is a raw socket of one IP version. The packets that it sends and receives begin with
// the header that follows the IP header.
type rawSocket struct {
	conn *net.IPConn
	v4   *ipv4.PacketConn // nil for IPv6
	v6   *ipv6.PacketConn // nil for IPv4
}

// receiveBuffer is the size of the buffer for the answers to some thousand simultaneous requests.
const receiveBuffer = 4 << 20

// retryPause is the delay before reading again from a failing socket.
const retryPause = 10 * time.Millisecond

// openRaw opens a raw socket for a protocol, named as for net.ListenIP. redirect, if not nil,
// redirects its packets.
func openRaw(six bool, protocol string, redirect func(fd int) error) (rawSocket, error) {
	network, address := "ip4:"+protocol, "0.0.0.0"
	if six {
		network, address = "ip6:"+protocol, "::"
	}
	open := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
			if err == nil && redirect != nil {
				err = redirect(int(fd))
			}
		}); e != nil {
			return e
		}
		return err
	}}
	conn, err := open.ListenPacket(context.Background(), network, address)
	if err != nil {
		return rawSocket{}, err
	}
	s := rawSocket{conn: conn.(*net.IPConn)}
	if six {
		s.v6 = ipv6.NewPacketConn(conn)
	} else {
		s.v4 = ipv4.NewPacketConn(conn)
	}
	return s, nil
}

// keep makes the kernel deliver only packets with this value in the two bytes at an offset.
func (s rawSocket) keep(offset uint32, value uint16) error {
	// The filter of an IPv4 socket also sees the IP header: skip it.
	load := []bpf.Instruction{bpf.LoadMemShift{Off: 0}, bpf.LoadIndirect{Off: offset, Size: 2}}
	if s.v6 != nil {
		load = []bpf.Instruction{bpf.LoadAbsolute{Off: offset, Size: 2}}
	}
	program, err := bpf.Assemble(append(load,
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(value), SkipFalse: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0}))
	if err != nil {
		return err
	}
	if s.v6 != nil {
		return s.v6.SetBPF(program)
	}
	return s.v4.SetBPF(program)
}

// send sends a packet. The kernel chooses the source if from is the zero Addr.
func (s rawSocket) send(packet []byte, from, to netip.Addr) error {
	dst, src := &net.IPAddr{IP: to.AsSlice()}, net.IP(from.AsSlice())
	if s.v6 != nil {
		_, err := s.v6.WriteTo(packet, &ipv6.ControlMessage{Src: src}, dst)
		return err
	}
	_, err := s.v4.WriteTo(packet, &ipv4.ControlMessage{Src: src}, dst)
	return err
}

// receive passes packets of up to size bytes to deliver until the socket is closed. The packet is
// valid until deliver returns.
func (s rawSocket) receive(size int, deliver func(from netip.Addr, packet []byte, received time.Time)) {
	buf := make([]byte, size)
	for {
		n, from, err := s.conn.ReadFromIP(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(retryPause)
			continue
		}
		received := time.Now()
		address, _ := netip.AddrFromSlice(from.IP)
		deliver(address.Unmap(), buf[:n], received)
	}
}

func (s rawSocket) Close() error { return s.conn.Close() }
