package doctor

import "fmt"

// forwarding checks whether the data path may use the kernel's routes: it looks them up as if
// packets came from lo.
func forwarding(m *Machine) (out []Finding, err error) {
	if !m.Facts.Daemon {
		return nil, nil // the daemon sets it at its start
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		name := "net/" + family + "/conf/lo/forwarding"
		if on, ok := m.setting(name); !ok || on != 0 {
			continue
		}
		f := Finding{
			About: family, What: fmt.Sprintf("net.%s.conf.lo.forwarding is 0", family), Sure: Certain,
			Why: "service packets have no route and are dropped",
		}
		f.Command, f.Fix = sysctl(name, "1")
		out = append(out, f)
	}
	return out, nil
}

// reversePath looks for interfaces that drop packets whose answers would leave by another one.
func reversePath(m *Machine) (out []Finding, err error) {
	links, err := m.Network.Links()
	if err != nil {
		return nil, err
	}
	all, _ := m.setting("net/ipv4/conf/all/rp_filter")
	for _, l := range links {
		own, ok := m.setting("net/ipv4/conf/" + l.Name + "/rp_filter")
		if !ok || l.Loopback || !l.Up || max(all, own) != 1 {
			continue
		}
		name := "net/ipv4/conf/" + l.Name + "/rp_filter"
		f := Finding{
			About: l.Name, What: fmt.Sprintf("the reverse path filter of %s is strict (rp_filter is 1)", l.Name), Sure: Possible,
			Why: "answers to probes and packets for the kernel are dropped if their return route uses another interface; balanced packets are not affected",
		}
		f.Command, f.Fix = sysctl(name, "2") // the larger of "all" and the interface's own value counts
		out = append(out, f)
	}
	return out, nil
}

// redirects checks whether the kernel may redirect clients past this machine.
func redirects(m *Machine) (out []Finding, err error) {
	links, err := m.Network.Links()
	if err != nil || len(m.Facts.Endpoints) == 0 {
		return nil, err
	}
	var up []string
	for _, l := range links {
		if l.Up && !l.Loopback {
			up = append(up, l.Name)
		}
	}
	all, _ := m.setting("net/ipv4/conf/all/send_redirects")
	forward, _ := m.setting("net/ipv4/ip_forward")
	if len(up) != 1 || forward == 0 {
		return nil, nil // packets leave by another interface than they arrived at, or the kernel routes none
	}
	if own, ok := m.setting("net/ipv4/conf/" + up[0] + "/send_redirects"); !ok || max(all, own) == 0 {
		return nil, nil
	}
	f := Finding{
		About: up[0], What: up[0] + " is the only interface, and the kernel can send ICMP redirects there", Sure: Possible,
		Why: "redirects make clients send routed packets directly to endpoints, so answers bypass this machine",
	}
	f.Command, f.Fix = sysctl("net/ipv4/conf/all/send_redirects", "0")
	if own, _ := m.setting("net/ipv4/conf/" + up[0] + "/send_redirects"); own != 0 && all == 0 {
		f.Command, f.Fix = sysctl("net/ipv4/conf/"+up[0]+"/send_redirects", "0")
	}
	return []Finding{f}, nil
}
