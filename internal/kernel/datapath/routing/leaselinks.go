package routing

import (
	"net/netip"

	"loxilb/internal/kernel/datapath/bpf"
)

// mostLinks is how many interfaces of a VIP are checked.
const mostLinks = int(bpf.TcLeaseLimitLEASE_LINKS)

// SetLinks sets the interfaces, by index, that answer ARP for a VIP. Without any, all interfaces
// do, and if they are more than the packet path checks.
func (l *Leases) SetLinks(vip netip.Addr, links []int) error {
	if len(links) > mostLinks {
		links = nil
	}
	return l.changeVIP(vip, func(row *bpf.TcLease) {
		row.Links = [mostLinks]uint32{}
		for i, index := range links {
			row.Links[i] = uint32(index)
		}
	})
}

// KeepLinks has all interfaces answer for all VIPs except these.
func (l *Leases) KeepLinks(keep func(netip.Addr) bool) error {
	return l.changeOthers(keep, func(row *bpf.TcLease) { row.Links = [mostLinks]uint32{} })
}
