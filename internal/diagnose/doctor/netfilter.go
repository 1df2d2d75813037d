package doctor

import (
	"fmt"
	"strconv"
	"strings"
)

// netfilter checks whether the kernel's conntrack table is nearly full, which affects probes, SSH
// and forwarded packets. Balanced packets do not pass netfilter.
func netfilter(m *Machine) (out []Finding, err error) {
	count, ok1 := m.setting("net/netfilter/nf_conntrack_count")
	limit, ok2 := m.setting("net/netfilter/nf_conntrack_max")
	if ok1 && ok2 && limit > 0 && count*10 > limit*9 {
		f := Finding{
			About: "conntrack", What: fmt.Sprintf("the kernel's conntrack table has %d of %d entries", count, limit), Sure: Likely,
			Why: "when it is full, the kernel drops packets of probes, SSH and routed traffic; balanced packets use another table",
		}
		f.Command, f.Fix = sysctl("net/netfilter/nf_conntrack_max", strconv.FormatInt(2*limit, 10))
		out = append(out, f)
	}
	return out, nil
}

// ports checks whether enough source ports are left for connections from addresses of this machine.
func ports(m *Machine) ([]Finding, error) {
	text, ok := m.read("proc/sys/net/ipv4/ip_local_port_range")
	words := strings.Fields(text)
	if !ok || len(words) != 2 {
		return nil, nil
	}
	first, err1 := strconv.Atoi(words[0])
	last, err2 := strconv.Atoi(words[1])
	if err1 != nil || err2 != nil {
		return nil, fmt.Errorf("net.ipv4.ip_local_port_range is %q", text)
	}
	const fewest = 8192 // minPorts of package hostsockets
	left := 65536 - 1024 - (last - max(first, 1024) + 1)
	if reserved, _ := m.read("proc/sys/net/ipv4/ip_local_reserved_ports"); left >= fewest || reserved != "" {
		return nil, nil
	}
	f := Finding{
		About: "range", What: fmt.Sprintf("the kernel assigns ports %d to %d to local sockets", first, last), Sure: Likely,
		Why: fmt.Sprintf("translated connections share these ports: %d remain, %d are needed", left, fewest),
	}
	f.Command, f.Fix = sysctl("net/ipv4/ip_local_port_range", "32768 60999")
	f.Command = `sysctl -w net.ipv4.ip_local_port_range="32768 60999"`
	return []Finding{f}, nil
}

// IPsecRefusal is a policy of the kernel's IPsec that blocks or encrypts packets of services.
type IPsecRefusal struct {
	About      string // address of an endpoint, or network of clients
	Packets    string // a description of the refused packets
	Policy     string
	RefusesAll bool // it concerns all packets to the endpoint, or all of its answers
	Ignored    bool // --ipsec=ignore: they are sent nevertheless
}

// ipsec reports endpoints, and networks of clients, whose packets the kernel's IPsec policies
// cover.
func ipsec(m *Machine) (out []Finding, err error) {
	seen := map[string]bool{}
	for _, r := range m.Facts.IPsec {
		if seen[r.About] {
			continue
		}
		seen[r.About] = true
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
		if !r.RefusesAll {
			f.Sure = Likely
		}
		out = append(out, f)
	}
	return out, m.Facts.IPsecError
}
