package files

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/kinds"
	"loxilb/internal/lb/netobj"
)

// The kernel's protocols of routes that administrators create.
const (
	byBoot   = 3
	byStatic = 4
)

// interfaceConfig is the configuration of interfaces: the lines of each file, by interface.
type interfaceConfig map[string]map[string][]string

func (c interfaceConfig) add(dev, file, format string, args ...any) {
	if c[dev] == nil {
		c[dev] = map[string][]string{}
	}
	c[dev][file] = append(c[dev][file], fmt.Sprintf(format, args...))
}

// Lines returns the number of all lines.
func (c interfaceConfig) Lines() (n int) {
	for _, files := range c {
		for _, lines := range files {
			n += len(lines)
		}
	}
	return n
}

// interfaceLeftOut counts manual routes that are not saved, by reason, which completes a sentence
// after "which".
type interfaceLeftOut map[string]int

// newInterfaceConfig collects what to save: the kernel's addresses and its manual routes with a
// gateway, and loxilb's own objects of all other kinds. It leaves out automatic ones: link-local
// addresses, and the interface lo, which has VIPs.
func newInterfaceConfig(addresses []v1.DeviceAddresses, routes []v1.RouteEntry, objects []v1.Object) (interfaceConfig, interfaceLeftOut, error) {
	c, left := interfaceConfig{}, interfaceLeftOut{}
	for _, d := range addresses {
		for _, text := range d.IpAddress {
			p, err := netip.ParsePrefix(text)
			if err != nil || d.Dev == "lo" || p.Addr().IsLinkLocalUnicast() {
				continue
			}
			c.add(d.Dev, family(p.Addr())+"addr", "ip addr add %s dev %s", p, d.Dev)
		}
	}
	c.routes(routes, left)
	for i := range objects {
		if err := c.object(&objects[i]); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", objects[i].Kind, err)
		}
	}
	for dev := range c {
		if dev == "" || dev == "." || dev == ".." || strings.ContainsAny(dev, "/\x00") {
			return nil, nil, fmt.Errorf("%q is not an interface name", dev)
		}
	}
	return c, left, nil
}

// routes adds the routes that can be applied again, one per destination.
func (c interfaceConfig) routes(routes []v1.RouteEntry, left interfaceLeftOut) {
	there := map[netip.Prefix]bool{}
	for i := range routes {
		e := &routes[i]
		if e.Dev == "" || e.Gateway == "" || e.Protocol != byBoot && e.Protocol != byStatic {
			continue
		}
		r, why := routeOf(e)
		if why == "" && there[r.Destination] {
			why = "have the destination of a saved route: only one of several gateways is kept"
		}
		if why != "" {
			left[why]++
			continue
		}
		there[r.Destination] = true
		proto := "boot"
		if e.Protocol == byStatic {
			proto = "static"
		}
		c.add(e.Dev, family(r.Gateway)+"route", "ip route add %s via %s proto %s", r.Destination, r.Gateway, proto)
	}
}

// routeOf returns a route for apply, or the reason why apply would refuse it.
func routeOf(e *v1.RouteEntry) (r netobj.Route, why string) {
	r, err := netobj.ParseRoute(e.DestinationIPNet, e.Gateway, "")
	switch {
	case e.Metric != 0:
		why = "have a metric: routes of loxilb have the default one"
	case err == nil:
	case r.Gateway.Is6() && r.Destination.IsValid() && r.Destination.Addr().Is4():
		why = "are IPv4 by an IPv6 gateway"
	case r.Gateway.Is6() && r.Gateway.IsLinkLocalUnicast():
		why = "have a link-local gateway, such as fe80::1: routes of loxilb name no interface"
	default:
		why = "are of a type that loxilb does not create"
	}
	return r, why
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "ipv4"
	}
	return "ipv6"
}

// object adds an object that loxilb has made.
func (c interfaceConfig) object(o *v1.Object) error {
	var spec struct {
		Dev, IPAddress, MacAddress, EpIntf, PeerIP string
		Vid, VxlanID                               int
		Tagged                                     bool
	}
	var of struct{ Vid, VxlanID int }
	if err := json.Unmarshal(o.Spec, &spec); err != nil {
		return err
	}
	if len(o.Metadata) > 0 {
		if err := json.Unmarshal(o.Metadata, &of); err != nil {
			return err
		}
	}
	switch o.Kind {
	case kinds.VLANDocument:
		c.add(fmt.Sprintf("vlan%d", spec.Vid), "type", "ip link add name vlan%d type bridge", spec.Vid)
	case kinds.VLANMemberDocument:
		dev := spec.Dev
		if spec.Tagged {
			dev = fmt.Sprintf("%s.%d", spec.Dev, of.Vid)
			c.add(spec.Dev, "subintf", "ip link add link %s name %s type vlan id %d", spec.Dev, dev, of.Vid)
		}
		c.add(spec.Dev, "master", "ip link set dev %s master vlan%d", dev, of.Vid)
	case kinds.VXLANDocument:
		c.add(fmt.Sprintf("vxlan%d", spec.VxlanID), "type", "ip link add name vxlan%d type vxlan id %d dev %s dstport 4789", spec.VxlanID, spec.VxlanID, spec.EpIntf)
	case kinds.VXLANPeerDocument:
		c.add(fmt.Sprintf("vxlan%d", of.VxlanID), "vxfdbs", "bridge fdb append 00:00:00:00:00:00 dst %s dev vxlan%d", spec.PeerIP, of.VxlanID)
	case kinds.NeighborDocument:
		a, err := netip.ParseAddr(spec.IPAddress)
		if err != nil {
			return err
		}
		c.add(spec.Dev, family(a)+"neigh", "ip neigh add %s lladdr %s dev %s nud permanent", a, spec.MacAddress, spec.Dev)
	case kinds.FDBDocument:
		c.add(spec.Dev, "l2fdbs", "bridge fdb add %s dev %s", spec.MacAddress, spec.Dev)
	}
	return nil
}
