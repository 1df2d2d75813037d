package rig

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"

	"loxilb/test/netnstest"
)

// Bracket puts brackets around an IPv6 address, as in URLs and flags.
func Bracket(a string) string {
	if strings.Contains(a, ":") {
		return fmt.Sprintf("[%s]", a)
	}
	return a
}

// HostAddress returns the address of a host of the standard topology.
func HostAddress(h *netnstest.Host, is6 bool) string {
	for _, n := range netnstest.StandardNetworks() {
		switch {
		case n.Host != h.Name:
		case is6:
			return n.V6.Addr().String()
		default:
			return n.V4.Addr().String()
		}
	}
	return ""
}

// Virtual addresses that no interface has.
const (
	VIP4 = "20.20.20.1"
	VIP6 = "2001:db8:20::1"
)

// Endpoints4 returns the value of --endpoints for all three endpoints. The default weight is 1.
func Endpoints4(weights ...int) string { return endpointList(weights, false) }

// Endpoints6 returns the same endpoints with IPv6 addresses.
func Endpoints6(weights ...int) string { return endpointList(weights, true) }

func endpointList(weights []int, is6 bool) string {
	var out []string
	for i, n := range netnstest.StandardNetworks()[1:] {
		weight := 1
		if i < len(weights) {
			weight = weights[i]
		}
		address := n.V4.Addr().String()
		if is6 {
			address = "[" + n.V6.Addr().String() + "]"
		}
		out = append(out, fmt.Sprintf("%s:%d", address, weight))
	}
	return strings.Join(out, ",")
}

// Join is net.JoinHostPort with the port as a number.
func Join(host string, port int) string { return net.JoinHostPort(host, fmt.Sprint(port)) }

// Prefix is netip.MustParsePrefix.
func Prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// HasAddress reports whether an interface of the balancer has an address.
func (r *Rig) HasAddress(address string) bool {
	r.T.Helper()
	addresses, err := r.LB.Netlink().AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		r.T.Fatal(err)
	}
	for _, a := range addresses {
		if a.IP.Equal(net.ParseIP(address)) {
			return true
		}
	}
	return false
}
