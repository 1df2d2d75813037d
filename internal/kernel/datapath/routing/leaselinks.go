package routing

import (
	"net/netip"

	"loxilb/internal/kernel/datapath/bpf"
)

// maxLinks is the maximum number of interfaces of a VIP that are checked.
const maxLinks = int(bpf.TcLeaseLimitLEASE_LINKS)

// SetLinks sets the interfaces, by index, that answer ARP for a VIP. If there are none, or more
// than the packet path checks, all interfaces answer.
func (l *Leases) SetLinks(vip netip.Addr, links []int) error {
	if len(links) > maxLinks {
		links = nil
	}
	return l.changeVIP(vip, func(row *bpf.TcLease) {
		row.Links = [maxLinks]uint32{}
		for i, index := range links {
			row.Links[i] = uint32(index)
		}
	})
}

// KeepLinks removes the interfaces of all other VIPs, for which all interfaces then answer.
func (l *Leases) KeepLinks(keep func(netip.Addr) bool) error {
	return l.changeOthers(keep, func(row *bpf.TcLease) { row.Links = [maxLinks]uint32{} })
}
