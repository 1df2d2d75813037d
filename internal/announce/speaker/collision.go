package speaker

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"loxilb/internal/lb/bgp"
)

// repairCollision restarts a session that does not come up because both sides connected at the same
// time, as when a link comes up. gobgp v4.8.0 may then choose the connection that the neighbor
// closes, and never read the other one, while the neighbor refuses new connections for minutes.
func (e *engine) repairCollision(p *peer) {
	addr, err := netip.ParseAddr(p.addr)
	if err != nil || !endConnections(e.config.Port, addr) {
		return
	}
	e.log.Info("BGP connections have collided; the session begins again", "neighbor", p.key)
	e.logUnchanged(p, e.deletePeer(p))
	e.readdPeer(p.key, p.config)
}

func (e *engine) readdPeer(k string, n bgp.Neighbor) {
	if err := e.addPeer(k, n); err != nil {
		e.owner.requestRetry()
	}
}

// endConnections ends the connections of this process that a neighbor has made to a port, and
// reports whether there was one.
func endConnections(port uint16, from netip.Addr) (found bool) {
	eachConnection(from, func(fd, local, _ int) {
		found = local == int(port) && unix.Shutdown(fd, unix.SHUT_RDWR) == nil || found
	})
	return found
}
