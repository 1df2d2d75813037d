package vip

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"loxilb/internal/kernel/netdev/diagnosis"
)

// Kind is the subject of VIPs' problems.
const Kind = "vip"

// Problems returns what prevents VIPs from being found.
func (o *Owner) Problems() []diagnosis.Problem {
	ignores := o.ignores()
	o.mu.Lock()
	defer o.mu.Unlock()
	var failed []diagnosis.Problem
	for a, err := range o.failed {
		var p diagnosis.Problem
		if !errors.As(err, &p) {
			p = diagnosis.Problem{Kind: Kind, Key: a.String(), What: fmt.Sprintf("VIP %s is not looked after: %v", a, err), Hint: "it is tried again by itself"}
		}
		failed = append(failed, p)
	}
	out := diagnosis.Bounded(failed, len(failed), Kind, "VIPs that cannot be added")
	deaf := map[string]netip.Addr{} // links that do not answer ARP for a VIP, and the first one
	for a := range o.want {
		if !a.Is4() {
			continue
		}
		for _, l := range o.mirror.OnLink(a) {
			mode, ours := ignores[l.Name], len(o.have[a]) > 0
			if first := deaf[l.Name]; (mode == 8 || (mode == 3 && ours)) && (!first.IsValid() || a.Less(first)) {
				deaf[l.Name] = a
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(deaf)) {
		out = append(out, diagnosis.Problem{
			Kind: Kind, Key: deaf[name].String(),
			What: fmt.Sprintf("%s does not answer ARP for VIPs such as %s: its arp_ignore is %d", name, deaf[name], ignores[name]),
			Hint: fmt.Sprintf("set net.ipv4.conf.all.arp_ignore=0 and net.ipv4.conf.%s.arp_ignore=0 (1 and 2 do as well)", name),
		})
	}
	return out
}
