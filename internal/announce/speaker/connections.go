package speaker

import (
	"cmp"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/lb/bgp"
)

// limitSending ends the session of a neighbor that sends, but does not read for its hold time (RFC
// 9687). gobgp v4.8.0 would wait forever: the neighbor would keep withdrawn routes, and this
// process all unsent messages.
func (e *engine) limitSending(p *peer) {
	neighbor, err := netip.ParseAddr(p.addr)
	if err != nil {
		return
	}
	limit := int(cmp.Or(p.config.Hold, defaultHold) / time.Millisecond)
	eachConnection(neighbor, func(fd, local, remote int) {
		if local == int(e.config.Port) || remote == int(cmp.Or(p.config.Port, bgp.DefaultPort)) {
			e.logUnchanged(p, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, limit))
		}
	})
}

// eachConnection calls f for the TCP connections of this process with an address. The descriptor is
// a duplicate: it stays valid even if the original is closed meanwhile.
func eachConnection(with netip.Addr, f func(fd, localPort, remotePort int)) {
	const dir = "/proc/self/fd"
	files, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, file := range files {
		original, err := strconv.Atoi(file.Name())
		if err != nil {
			continue
		}
		if to, err := os.Readlink(filepath.Join(dir, file.Name())); err != nil || !strings.HasPrefix(to, "socket:") {
			continue
		}
		if fd, err := unix.FcntlInt(uintptr(original), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			if local, remote, ok := ports(fd, with); ok {
				f(fd, local, remote)
			}
			_ = unix.Close(fd) // a duplicate
		}
	}
}

// ports returns the ports of a socket that is connected to an address.
func ports(fd int, with netip.Addr) (local, remote int, ok bool) {
	here, err := unix.Getsockname(fd)
	if err != nil {
		return 0, 0, false
	}
	there, err := unix.Getpeername(fd)
	if err != nil {
		return 0, 0, false
	}
	_, local = socketAddr(here)
	addr, remote := socketAddr(there)
	return local, remote, addr == with.WithZone("")
}

// socketAddr returns the address and port of a TCP socket.
func socketAddr(a unix.Sockaddr) (netip.Addr, int) {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(a.Addr), a.Port
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(a.Addr).Unmap(), a.Port
	}
	return netip.Addr{}, 0
}
