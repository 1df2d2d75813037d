package election

import (
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/announce/bfd"
)

// Extra returns the claims of the instances of a path.
func (p *path) Extra() []byte {
	m := p.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	now, message := time.Now(), Message{Restart: m.restart}
	for instance, e := range m.elections {
		if e.path == p && len(message.Entries) < MaxEntries {
			m.update(e, func() { e.machine.checkLease(now) })
			entry := e.machine.Claim(now)
			entry.Instance = InstanceHash(instance)
			message.Entries = append(message.Entries, entry)
		}
	}
	return message.Append(nil)
}

// Heard lets the elections of a path decide by the peer's claims, unless they are old: while the
// session is down here, a packet of an established session may have been queued since before the
// link failed.
func (p *path) Heard(s bfd.Status, extra []byte) {
	m := p.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.State != bfd.Up && s.Remote == bfd.Up {
		p.changed(s)
		return
	}
	message, isMessage := Parse(extra)
	if isMessage {
		p.peer.EnableQuickStart()
	}
	claims := map[uint32]Entry{}
	for _, entry := range message.Entries {
		claims[entry.Instance] = entry
	}
	now := time.Now()
	for instance, e := range m.elections {
		if e.path != p {
			continue
		}
		entry, hasClaim := claims[InstanceHash(instance)]
		e.makesClaims, e.claim = hasClaim, entry.Claim
		timeout := e.Path.Interval * time.Duration(e.Path.Multiplier)
		m.update(e, func() {
			e.machine.rank = e.rank(s.Local)
			if s.Remote == bfd.AdminDown {
				e.machine.Lost(false, now)
				return
			}
			e.machine.Heard(s.State == bfd.Up, hasClaim, entry, message.Restart, timeout, now)
		})
	}
	p.changed(s)
}

// Lost lets the elections decide without the peer.
func (p *path) Lost(s bfd.Status) {
	m := p.manager
	connected := m.connected(s.Local)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.elections {
		if e.path == p {
			e.makesClaims, e.claim = false, 0
			m.update(e, func() { e.machine.Lost(!connected, time.Now()) })
		}
	}
	p.changed(s)
}

// connected reports whether the interface of an address is up and has a carrier. Without a carrier,
// this node is unreachable, whether its peer serves or not. The flag IFF_RUNNING follows a carrier
// only within a second.
func (m *Manager) connected(local netip.Addr) (connected bool) {
	err := m.do(func() error {
		addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
		for i := range addrs {
			if a, ok := netip.AddrFromSlice(addrs[i].IP); !ok || a.Unmap() != local.WithZone("") {
				continue
			}
			if link, err := netlink.LinkByIndex(addrs[i].LinkIndex); err == nil {
				connected = connected || link.Attrs().RawFlags&unix.IFF_LOWER_UP != 0
			}
		}
		return err
	})
	return connected || err != nil // if unknown, the ranks decide
}

// changed signals a change of the session's state. The caller must hold mu.
func (p *path) changed(s bfd.Status) {
	if s.State != p.state {
		p.state = s.State
		p.manager.renewLeases()
		p.manager.signal()
	}
}

// Sent extends the lease of this node after a packet to the peer: if the packet is lost, the peer
// detects the failure, and may take over, at the time detected.
func (p *path) Sent(_, detected time.Time, state bfd.State) {
	m := p.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	if state != bfd.Up {
		return
	}
	now := time.Now()
	for _, e := range m.elections {
		if e.path == p {
			m.update(e, func() {
				e.machine.checkLease(now)
				e.machine.Sent(detected)
			})
		}
	}
	m.renewLeases()
}
