package netdev

import (
	"errors"
	"fmt"
	"io/fs"

	"loxilb/internal/kernel/netdev/netlink"
)

// Settings are the settings of one namespace.
type Settings struct {
	ns *netlink.Namespace
}

// newSettings returns the settings of a namespace.
func newSettings(ns *netlink.Namespace) Settings { return Settings{ns: ns} }

func (s Settings) get(name string) (int, error) { return s.ns.Sysctl(name) }

func (s Settings) set(name string, value int) error { return s.ns.SetSysctl(name, value) }

// ARPIgnore returns the effective arp_ignore of a link: the larger of its own and "all".
func (s Settings) ARPIgnore(link string) int {
	all, _ := s.get("ipv4/conf/all/arp_ignore")
	own, _ := s.get("ipv4/conf/" + link + "/arp_ignore")
	return max(all, own)
}

// ReversePathFilter returns the effective rp_filter of a link: the larger of its own and "all".
func (s Settings) ReversePathFilter(link string) int {
	all, _ := s.get("ipv4/conf/all/rp_filter")
	own, _ := s.get("ipv4/conf/" + link + "/rp_filter")
	return max(all, own)
}

// Forward enables net.ipv4.conf.lo.forwarding and its IPv6 equivalent: the data path looks up
// routes as if packets came from lo, so no real interface needs forwarding. The setting of lo
// affects no other interface; but writing net.ipv4.ip_forward or net.ipv6.conf.all.forwarding also
// changes the setting of lo.
//
// advertised lists the links with routes by router advertisement. Returned problems prevent
// forwarding.
func (s Settings) Forward(advertised func() ([]string, error)) []Problem {
	var problems []Problem
	for _, family := range []string{"ipv4", "ipv6"} {
		err := s.forward(family, advertised)
		if err == nil || (family == "ipv6" && errors.Is(err, fs.ErrNotExist)) { // a kernel without IPv6
			continue
		}
		problems = append(problems, Problem{
			Kind: "setting", Key: fmt.Sprintf("net.%s.conf.lo.forwarding", family),
			What: fmt.Sprintf("packets of services are dropped: net.%s.conf.lo.forwarding is not 1 and cannot be set: %v", family, err),
			Hint: fmt.Sprintf("set net.%s.conf.lo.forwarding=1 in this network namespace, or let loxilb write /proc/sys/net", family),
		})
	}
	return problems
}

// StopForwarding undoes Forward: lo gets the setting of all interfaces again.
func (s Settings) StopForwarding() error {
	var errs []error
	for _, family := range []string{"ipv4", "ipv6"} {
		all, err := s.get(family + "/conf/all/forwarding")
		if err != nil || all == 1 { // the family is disabled, or lo forwards
			continue
		}
		if err := s.set(family+"/conf/lo/forwarding", 0); err != nil {
			errs = append(errs, fmt.Errorf("set net.%s.conf.lo.forwarding=0: %w", family, err))
		}
	}
	return errors.Join(errs...)
}

func (s Settings) forward(family string, advertised func() ([]string, error)) error {
	name := family + "/conf/lo/forwarding"
	now, err := s.get(name)
	if err != nil || now == 1 {
		return err
	}
	if family == "ipv4" {
		return s.set(name, 1)
	}
	return s.keepingAdvertisedRoutes(advertised, func() error { return s.set(name, 1) })
}

// keepingAdvertisedRoutes runs f, which switches some IPv6 forwarding on. The kernel then drops the
// default routes that router advertisements brought to any interface, unless its accept_ra is 2,
// and has no IPv6 default route until the next advertisement, minutes later. So these interfaces
// have accept_ra=2 meanwhile.
func (s Settings) keepingAdvertisedRoutes(advertised func() ([]string, error), f func() error) error {
	links, err := advertised()
	if err != nil {
		return err
	}
	var back []func()
	for _, l := range links {
		name := "ipv6/conf/" + l + "/accept_ra"
		old, err := s.get(name)
		if err != nil || old == 2 {
			continue
		}
		if s.set(name, 2) == nil {
			back = append(back, func() { _ = s.set(name, old) })
		}
	}
	err = f()
	for _, restore := range back {
		restore()
	}
	return err
}

// WriteSysctl sets a setting of the thread's network namespace. name is a path below /proc/sys/net.
func WriteSysctl(name string, value int) error { return netlink.WriteSysctl(name, value) }
