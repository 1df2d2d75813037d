package doctor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

const (
	// patience is the time for an echo reply.
	patience = 400 * time.Millisecond
	// maxPinged is the number of pinged endpoints, and pingedAtOnce the number at a time: each
	// takes a socket, and without an answer a second and a half.
	maxPinged, pingedAtOnce = 256, 64
	echoHeaders4            = 20 + 8
	echoHeaders6            = 40 + 8
	smallPing               = 84 // bytes of the IP packet
)

// pingEach calls f for the first maxPinged elements of a list, many concurrently.
func pingEach[T any](list []T, f func(T)) {
	var asking sync.WaitGroup
	places := make(chan struct{}, pingedAtOnce)
	for _, one := range list[:min(len(list), maxPinged)] {
		places <- struct{}{}
		asking.Go(func() {
			f(one)
			<-places
		})
	}
	asking.Wait()
}

// Ping sends echo requests, in packets of these sizes that no router may fragment, and returns the
// answered sizes. It ignores the path MTU that the kernel has learnt.
func (kernelNetwork) Ping(to netip.Addr, sizes ...int) (answered []bool, err error) {
	network, headers, protocol := "ip4:icmp", echoHeaders4, ipv4.ICMPTypeEcho.Protocol()
	if to.Is6() {
		network, headers, protocol = "ip6:ipv6-icmp", echoHeaders6, ipv6.ICMPTypeEchoRequest.Protocol()
	}
	open := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = neverFragment(int(fd), to.Is6()) }), err)
	}}
	conn, err := open.ListenPacket(context.Background(), network, "")
	if err != nil {
		return nil, fmt.Errorf("ping %s: %w", to, err)
	}
	defer conn.Close() //nolint:errcheck // nothing was written that could be lost
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	token := rand.Uint64()
	for n, size := range sizes {
		m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: int(uint16(token)), Seq: n, Data: filled(token, size-headers)}}
		if to.Is6() {
			m.Type = ipv6.ICMPTypeEchoRequest
		}
		packet, err := m.Marshal(nil)
		if err != nil {
			return nil, err
		}
		_, _ = conn.WriteTo(packet, &net.IPAddr{IP: to.AsSlice()}) // a packet that cannot be sent is not answered
	}
	return replies(conn, to, protocol, token, len(sizes)), nil
}

func neverFragment(fd int, six bool) error {
	if six {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
}

// filled returns data of a size that begins with a token.
func filled(token uint64, size int) []byte {
	data := make([]byte, max(size, 8))
	binary.BigEndian.PutUint64(data, token)
	return data
}

// replies waits for the replies to the requests. The socket also receives replies to requests of
// other sockets.
func replies(conn net.PacketConn, to netip.Addr, protocol int, token uint64, sent int) []bool {
	answered, left := make([]bool, sent), sent
	buf := make([]byte, 1<<16)
	for left > 0 {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			break
		}
		a, _ := from.(*net.IPAddr)
		m, err := icmp.ParseMessage(protocol, buf[:n])
		if err != nil || a == nil || m.Type != ipv4.ICMPTypeEchoReply && m.Type != ipv6.ICMPTypeEchoReply {
			continue
		}
		sender, _ := netip.AddrFromSlice(a.IP)
		e, ok := m.Body.(*icmp.Echo)
		if !ok || sender.Unmap() != to || len(e.Data) < 8 || binary.BigEndian.Uint64(e.Data) != token || e.Seq >= sent || answered[e.Seq] {
			continue
		}
		answered[e.Seq] = true
		left--
	}
	return answered
}
