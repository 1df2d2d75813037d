package doctor

import (
	"fmt"
	"net/netip"
)

// IPsecPolicy is a policy of the kernel's IPsec.
type IPsecPolicy struct {
	Forward             bool // of forwarded packets as they arrive; else of packets that leave
	Source, Destination netip.Prefix
	Whole               bool // of all protocols and ports
	Refuses             bool // packets must not leave as they are: it blocks or encrypts them
	Text                string
}

// ipsec looks for policies of IPsec that would block or encrypt balanced packets, if the kernel asked them.
func ipsec(m *Machine) (out []Finding, err error) {
	add := func(p *IPsecPolicy, a netip.Addr, what string) {
		out = append(out, Finding{
			About: a.String(), What: fmt.Sprintf("a policy of IPsec covers %s %s, and does not apply to balanced packets (%s)", what, a, p.Text), Sure: Likely,
			Why:     "balanced packets pass by the kernel's IPsec: they leave in clear text where it would encrypt or block them",
			Command: "ip xfrm policy shows it; reach the address by a tunnel that is an interface, such as WireGuard",
		})
	}
	told := map[netip.Addr]bool{}
	for i := range m.Facts.IPsec {
		p := &m.Facts.IPsec[i]
		if !p.Refuses || m.isExempt(i) {
			continue
		}
		for _, e := range m.Facts.Endpoints {
			if p.Destination.Contains(e.Addr.Unmap()) && !told[e.Addr] {
				told[e.Addr] = true
				add(p, e.Addr, "the way to endpoint")
			}
		}
		for _, vip := range m.Facts.VIPs {
			if p.Source.Bits() > 0 && p.Source.Contains(vip.Unmap()) && !told[vip] {
				told[vip] = true
				add(p, vip, "answers of VIP")
			}
		}
	}
	return out, m.Facts.IPsecError
}

// isExempt reports whether an earlier policy lets all packets of policy number i leave.
func (m *Machine) isExempt(i int) bool {
	p := &m.Facts.IPsec[i]
	for _, earlier := range m.Facts.IPsec[:i] {
		if earlier.Forward == p.Forward && !earlier.Refuses && earlier.Whole && covers(earlier.Source, p.Source) && covers(earlier.Destination, p.Destination) {
			return true
		}
	}
	return false
}

// covers reports whether a prefix has all addresses of another one.
func covers(wide, narrow netip.Prefix) bool {
	return wide.Bits() <= narrow.Bits() && wide.Contains(narrow.Addr())
}
