package doctor

import (
	"fmt"
	"net/netip"
)

// IPsecRefusal is an endpoint whose packets a policy of the kernel's IPsec blocks or encrypts.
type IPsecRefusal struct {
	Service  string
	Endpoint netip.AddrPort
	Policy   string
	Whole    bool // all packets to it, or all its answers; else some
	Ignored  bool // by --ipsec=ignore they are sent all the same
}

// ipsec reports endpoints that policies of the kernel's IPsec keep from being reached.
func ipsec(m *Machine) (out []Finding, err error) {
	told := map[netip.Addr]bool{}
	for _, r := range m.Facts.IPsec {
		a := r.Endpoint.Addr()
		if told[a] {
			continue
		}
		told[a] = true
		f := Finding{
			About: a.String(), Sure: Certain,
			What:    fmt.Sprintf("packets of service %s to endpoint %s, or its answers, are refused: an IPsec policy covers them (%s)", r.Service, r.Endpoint, r.Policy),
			Why:     "packets of services bypass the kernel's IPsec: they would leave in clear text where it blocks or encrypts them",
			Command: "ip xfrm policy shows it; reach the endpoint by an interface that encrypts (xfrm, WireGuard), or allow the packets by a policy of a higher priority",
		}
		if r.Ignored {
			f.What = fmt.Sprintf("packets of service %s to endpoint %s, or its answers, leave in clear text although an IPsec policy covers them (%s)", r.Service, r.Endpoint, r.Policy)
			f.Why = "the daemon runs with --ipsec=ignore"
		}
		if !r.Whole {
			f.Sure, f.What = Likely, f.What+"; only some packets are concerned"
		}
		out = append(out, f)
	}
	return out, m.Facts.IPsecError
}
