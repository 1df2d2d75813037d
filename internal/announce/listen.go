package announce

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// listener receives the frames of one protocol in which hosts claim addresses.
type listener struct {
	protocol uint16            // of Ethernet
	filter   []unix.SockFilter // passes frames that may claim an address
	parse    func(frame []byte) (a netip.Addr, mac [6]byte, ok bool)
}

// maxFrame is more than ARP and neighbour advertisements need.
const maxFrame = 128

// arpListener receives ARP replies, and announcements: requests of a host for its own address.
func arpListener() listener {
	const op, sender, target = 20, 28, 38
	return listener{unix.ETH_P_ARP, []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: op},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 2, Jt: 4},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: sender},
		{Code: unix.BPF_MISC | unix.BPF_TAX},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: target},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_X, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: maxFrame},
		{Code: unix.BPF_RET | unix.BPF_K},
	}, func(f []byte) (a netip.Addr, mac [6]byte, ok bool) {
		if len(f) < 14+28 {
			return a, mac, false
		}
		return netip.AddrFrom4([4]byte(f[sender:])), [6]byte(f[22:]), true
	}}
}

// ndListener receives neighbour advertisements (RFC 4861, 4.4). Extension headers are not followed:
// advertisements have none.
func ndListener() listener {
	const next, kind, target, option = 20, 54, 62, 78
	return listener{unix.ETH_P_IPV6, []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: next},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.IPPROTO_ICMPV6, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: kind},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 136, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: maxFrame},
		{Code: unix.BPF_RET | unix.BPF_K},
	}, func(f []byte) (a netip.Addr, mac [6]byte, ok bool) {
		if len(f) < option {
			return a, mac, false
		}
		mac = [6]byte(f[6:]) // the frame's source, unless an option has the address
		if len(f) >= option+8 && f[option] == 2 && f[option+1] == 1 {
			mac = [6]byte(f[option+2:])
		}
		return netip.AddrFrom16([16]byte(f[target:])), mac, true
	}}
}

// listen reports other hosts that claim a VIP, until ctx ends. Packets that the data path
// redirects never reach its socket, so it costs them nothing.
func (d *Duplicates) listen(ctx context.Context, l listener) {
	file, err := l.open(d.network)
	if err != nil {
		d.log.Warn("duplicate VIPs cannot be detected", "error", err)
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = file.Close() })
	defer stop()
	raw, err := file.SyscallConn()
	if err != nil {
		return // it was closed
	}
	frame := make([]byte, maxFrame)
	for ctx.Err() == nil {
		var from unix.Sockaddr
		var n int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, from, failed = unix.Recvfrom(int(fd), frame, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		if err != nil {
			return // it was closed
		}
		link, is := from.(*unix.SockaddrLinklayer)
		if failed != nil || !is {
			continue // an interface that went down is reported once
		}
		if a, mac, ok := l.parse(frame[:n]); ok && d.owns(a) && !d.isOurs(mac[:]) {
			select {
			case d.claims <- claimant{vipLink{a, link.Ifindex}, mac}:
			default: // more than can be probed
			}
		}
	}
}

// open opens the socket, in the network's namespace.
func (l listener) open(n Network) (file *os.File, err error) {
	err = n.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		filter := unix.SockFprog{Len: uint16(len(l.filter)), Filter: &l.filter[0]}
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &filter)
		if err == nil { // bound only now: it has received nothing without the filter
			err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, l.protocol))})
		}
		if err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		file = os.NewFile(uintptr(fd), "packets")
		return nil
	})
	return file, err
}

// probeFrame returns the frame that asks for another owner of an address: an ARP probe without a
// sender's address (RFC 5227, 2.1.1), or a neighbour solicitation from :: (RFC 4862, 5.4.2). No
// host learns anything from it.
func probeFrame(a netip.Addr, mac net.HardwareAddr) []byte {
	if a.Is4() {
		f := gratuitousARP(a.As4(), mac)
		clear(f[28:32])
		return f
	}
	return duplicateSolicitation(a.As16(), mac)
}
