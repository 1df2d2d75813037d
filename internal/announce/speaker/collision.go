package speaker

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"loxilb/internal/lb/bgp"
)

// collided mends a session that does not come up because both sides connected at the same time, as
// they do when a link comes back. gobgp v4.8.0 may then choose the connection that the neighbor
// closes, and leave the other one open without reading it. The neighbor would wait there for
// minutes, and refuse all others. So this connection is ended, and the session begins again.
func (e *engine) collided(p *peer) {
	addr, err := netip.ParseAddr(p.addr)
	if err != nil || !endConnections(e.config.Port, addr) {
		return
	}
	e.log.Info("BGP connections have collided; the session begins again", "neighbor", p.key)
	e.unchanged(p, e.deletePeer(p))
	e.addAgain(p.key, p.config)
}

func (e *engine) addAgain(k string, n bgp.Neighbor) {
	if err := e.addPeer(k, n); err != nil {
		e.owner.again()
	}
}

// endConnections ends the connections of this process that a neighbor has made to a port, and
// reports whether there was one.
func endConnections(port uint16, from netip.Addr) (found bool) {
	const dir = "/proc/self/fd"
	files, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, f := range files {
		fd, err := strconv.Atoi(f.Name())
		if err != nil {
			continue
		}
		if to, err := os.Readlink(filepath.Join(dir, f.Name())); err != nil || !strings.HasPrefix(to, "socket:") {
			continue
		}
		found = endConnection(fd, port, from) || found
	}
	return found
}

// endConnection ends a connection if it is from a neighbor to a port. A duplicate of the descriptor
// stays the same socket, whatever becomes of the original meanwhile.
func endConnection(original int, port uint16, from netip.Addr) bool {
	fd, err := unix.FcntlInt(uintptr(original), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd) //nolint:errcheck // a duplicate
	local, err := unix.Getsockname(fd)
	if err != nil {
		return false
	}
	peer, err := unix.Getpeername(fd)
	if err != nil {
		return false
	}
	_, localPort := socketAddr(local)
	remote, _ := socketAddr(peer)
	if localPort != int(port) || remote != from.WithZone("") {
		return false
	}
	return unix.Shutdown(fd, unix.SHUT_RDWR) == nil
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
