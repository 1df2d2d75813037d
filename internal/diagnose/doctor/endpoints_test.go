package doctor

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// routeless is a network without routes.
type routeless struct{ *fakeNetwork }

func (routeless) Route(netip.Addr) (Route, error) {
	return Route{}, unix.ENETUNREACH
}

// TestEndpointWithoutRoute checks that the finding about an endpoint without a route names the
// route as the cause.
func TestEndpointWithoutRoute(t *testing.T) {
	t.Parallel()
	m := &Machine{Network: routeless{}}
	m.Facts.Down = []Down{{netip.MustParseAddrPort("31.31.31.1:5001"), "no answer"}}
	list, err := endpoints(m)
	if err != nil || len(list) != 1 || !strings.Contains(list[0].Why, "no usable route") || list[0].Command != "ip route get 31.31.31.1" {
		t.Errorf(`got %+v, %v, want no error, len(list) == 1, "no usable route" in list[0].Why, list[0].Command == "ip route get 31.31.31.1"`, list, err)
	}
}

// TestEndpointWithoutSCTP checks that the finding about a host without SCTP does not suggest a
// firewall.
func TestEndpointWithoutSCTP(t *testing.T) {
	t.Parallel()
	m := &Machine{Network: &fakeNetwork{}}
	m.Facts.Down = []Down{{netip.MustParseAddrPort("31.31.31.1:3868"), "sctp 31.31.31.1:3868: the host has no SCTP (ICMP protocol unreachable), 3 of 3"}}
	list, err := endpoints(m)
	if err != nil || len(list) != 1 || !strings.Contains(list[0].Why, "modprobe sctp") {
		t.Errorf(`got %+v, %v, want no error, len(list) == 1, "modprobe sctp" in list[0].Why`, list, err)
	}
}
