package netobj

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"loxilb/internal/lb"
)

// RouteKind is the name of the kind.
const RouteKind = "route"

// Protocols of routes that administrators add, by the kernel's numbers.
const (
	ProtocolBoot   = 3
	ProtocolStatic = 4
)

// Route is a route of the main table.
type Route struct {
	Destination netip.Prefix `json:"destinationIPNet"`
	Gateway     netip.Addr   `json:"gateway"`
	Protocol    int          `json:"protocol,omitempty"` // ProtocolBoot or ProtocolStatic, for routes of users
	Metric      int          `json:"-"`                  // 0: the default of the IP version, which all routes of users have
}

// DefaultMetric6 is the kernel's default metric of IPv6 routes.
const DefaultMetric6 = 1024

// MetricOf converts a route's metric in the kernel to Route.Metric.
func MetricOf(destination netip.Prefix, metric int) int {
	if destination.Addr().Is6() && metric == DefaultMetric6 {
		return 0
	}
	return metric
}

// ParseRoute parses a route in the API's form.
func ParseRoute(destination, gateway, protocol string) (r Route, err error) {
	if r.Destination, err = ParseDestination(destination); err != nil {
		return r, err
	}
	if r.Gateway, err = parseHost("gateway", gateway); err != nil {
		return r, err
	}
	switch strings.ToLower(protocol) {
	case "", "boot", strconv.Itoa(ProtocolBoot):
		r.Protocol = ProtocolBoot
	case "static", strconv.Itoa(ProtocolStatic):
		r.Protocol = ProtocolStatic
	default:
		return r, lb.NewFieldError("protocol", protocol, "is not a protocol for routes of users", "static, or boot, the default")
	}
	return r, r.Validate()
}

// ParseDestination parses the destination of a route, and clears the bits after its length.
func ParseDestination(text string) (netip.Prefix, error) {
	p, err := parsePrefix("destinationIPNet", text)
	return p.Masked(), err
}

// Key returns the destination, and the metric if it is not the default.
func (r Route) Key() string {
	if r.Metric == 0 {
		return r.Destination.String()
	}
	return fmt.Sprintf("%s metric %d", r.Destination, r.Metric)
}

// RouteFromKey returns a route with only the members of its key. The route is invalid if no route
// can have the key.
func RouteFromKey(key string) (r Route) {
	to, metric, _ := strings.Cut(key, " metric ")
	r.Destination, _ = netip.ParsePrefix(to)
	r.Metric, _ = strconv.Atoi(metric)
	return r
}

// Validate refuses routes that the kernel would refuse.
func (r Route) Validate() error {
	switch {
	case !r.Destination.IsValid():
		return lb.NewFieldError("destinationIPNet", "", "is missing", "as in 10.1.0.0/16 or 2001:db8:1::/48")
	case r.Destination.Addr().IsMulticast():
		return lb.NewFieldError("destinationIPNet", r.Destination.String(), "is a multicast address", "a network of hosts")
	}
	if err := validateHost("gateway", r.Gateway); err != nil {
		return err
	}
	switch {
	case r.Gateway.Is4() != r.Destination.Addr().Is4():
		return lb.NewFieldError("gateway", r.Gateway.String(), "is of another IP version than "+r.Destination.String(), "an address of its version")
	case r.Gateway.IsLinkLocalUnicast() && r.Gateway.Is6():
		return lb.NewFieldError("gateway", r.Gateway.String(), "is link-local, but a route has no interface", "an address that is not link-local")
	}
	return nil
}

// Needs returns no interface: the kernel finds it by the gateway.
func (r Route) Needs() []string { return nil }

// SatisfiedBy ignores the protocol: any program may have added the route.
func (r Route) SatisfiedBy(have Route) bool {
	have.Protocol = r.Protocol
	return r == have
}

// String identifies the object.
func (r Route) String() string {
	if !r.Gateway.IsValid() {
		return r.Key()
	}
	return r.Key() + " via " + r.Gateway.String()
}
