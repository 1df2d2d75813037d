package netdev

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// keepForwarding sets net.ipv4.conf.lo.forwarding and its IPv6 twin where they are not: the data path looks routes up
// as if packets came from lo, so that no real interface need forward. That of lo changes no other interface's; but
// whoever writes net.ipv4.ip_forward or net.ipv6.conf.all.forwarding writes that of lo, too, which the watch reports.
func (n *Net) keepForwarding() {
	var problems []Problem
	for _, family := range []string{"ipv4", "ipv6"} {
		err := n.forwardFromLo(family)
		if err == nil || (family == "ipv6" && errors.Is(err, fs.ErrNotExist)) { // a kernel without IPv6
			continue
		}
		problems = append(problems, Problem{
			What: fmt.Sprintf("packets of services are dropped: net.%s.conf.lo.forwarding is not 1 and cannot be set: %v", family, err),
			Mend: fmt.Sprintf("set net.%s.conf.lo.forwarding=1 in this network namespace, or let loxilb write /proc/sys/net", family),
		})
	}
	n.health.forwarding(problems)
	n.diagnoseSoon()
}

func (n *Net) forwardFromLo(family string) error {
	name := family + "/conf/lo/forwarding"
	now, err := n.sysctl(name)
	if err != nil || now == 1 {
		return err
	}
	if family == "ipv4" {
		return n.setSysctl(name, 1)
	}
	return n.keepingAdvertisedRoutes(func() error { return n.setSysctl(name, 1) })
}

// keepingAdvertisedRoutes runs f, which switches some IPv6 forwarding on. The kernel then drops the default routes that
// router advertisements brought to any interface, unless its accept_ra is 2, and has no IPv6 default route until the
// next advertisement, minutes later. So those interfaces have accept_ra=2 meanwhile.
func (n *Net) keepingAdvertisedRoutes(f func() error) error {
	links, err := n.advertised()
	if err != nil {
		return fmt.Errorf("list routes by router advertisement: %w", err)
	}
	var back []func()
	for _, l := range links {
		name := "ipv6/conf/" + l.Name + "/accept_ra"
		old, err := n.sysctl(name)
		if err != nil || old == 2 {
			continue
		}
		if n.setSysctl(name, 2) == nil {
			back = append(back, func() { _ = n.setSysctl(name, old) })
		}
	}
	err = f()
	for _, restore := range back {
		restore()
	}
	return err
}

// advertised returns the links that have routes by router advertisement.
func (n *Net) advertised() ([]Link, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	links := map[int]Link{}
	err := n.route.dump(unix.RTM_GETROUTE, routeHeader(unix.AF_INET6, unix.RTPROT_RA), func(r reply) error {
		if rt, ok := parseRoute(r.body); ok && rt.oif != 0 {
			links[rt.oif] = n.link(rt.oif)
		}
		return nil
	})
	return slices.Collect(maps.Values(links)), err
}

// sysctl reads a number among the kernel's settings of the namespace; name is a path below /proc/sys/net, whose
// content depends on the namespace of the thread that opens it.
func (n *Net) sysctl(name string) (int, error) {
	var value int
	err := n.ns.do(func() error {
		b, err := os.ReadFile("/proc/sys/net/" + name)
		if err != nil {
			return err
		}
		value, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err
	})
	return value, err
}

func (n *Net) setSysctl(name string, value int) error {
	return n.ns.do(func() error {
		return os.WriteFile("/proc/sys/net/"+name, []byte(strconv.Itoa(value)), 0o644)
	})
}

// arpIgnore is the arp_ignore in force on a link: the larger of its own and that of all.
func (n *Net) arpIgnore(l Link) int {
	all, _ := n.sysctl("ipv4/conf/all/arp_ignore")
	own, _ := n.sysctl("ipv4/conf/" + l.Name + "/arp_ignore")
	return max(all, own)
}
