package doctor

import "fmt"

// IPsecRefusal is a policy of the kernel's IPsec that blocks or encrypts packets of services.
type IPsecRefusal struct {
	About   string // address of an endpoint, or network of clients
	Packets string // that are refused, in words
	Policy  string
	Whole   bool // all packets to the endpoint, or all its answers; else some
	Ignored bool // by --ipsec=ignore they are sent all the same
}

// ipsec reports endpoints, and networks of clients, whose packets the kernel's IPsec policies
// cover.
func ipsec(m *Machine) (out []Finding, err error) {
	told := map[string]bool{}
	for _, r := range m.Facts.IPsec {
		if told[r.About] {
			continue
		}
		told[r.About] = true
		f := Finding{
			About: r.About, Sure: Certain,
			What:    fmt.Sprintf("%s are refused: an IPsec policy covers them (%s)", r.Packets, r.Policy),
			Why:     "service packets bypass the kernel's IPsec: they would leave in clear text",
			Command: "see ip xfrm policy; use an encrypting interface (xfrm, WireGuard), or allow the packets by a policy of higher priority",
		}
		if r.Ignored {
			f.What = fmt.Sprintf("%s leave in clear text although an IPsec policy covers them (%s)", r.Packets, r.Policy)
			f.Why = "the daemon runs with --ipsec=ignore"
		}
		if !r.Whole {
			f.Sure = Likely
		}
		out = append(out, f)
	}
	return out, m.Facts.IPsecError
}
