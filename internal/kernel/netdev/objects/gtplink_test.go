package objects

import (
	"fmt"
	"net/netip"
	"testing"

	nl "github.com/vishvananda/netlink"

	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// TestMobileUserMTU checks that packets to mobile users fit the interfaces to their base stations,
// with the header of the tunnel: a packet that does not fit would be lost behind the program that
// adds the header, and its sender would not be notified.
func TestMobileUserMTU(t *testing.T) {
	t.Parallel()
	lab := labtest.New(t)
	balancer, station := must(lab.Host("lb")), must(lab.Host("station"))
	for i, mtu := range []int{1500, 1400, 9000, 1300} {
		end := func(h *netnstest.Host, n int) netnstest.End {
			return netnstest.End{Host: h, Interface: fmt.Sprint("net", i), Addresses: []netip.Prefix{
				netip.MustParsePrefix(fmt.Sprintf("10.10.%d.%d/24", i, n)), netip.MustParsePrefix(fmt.Sprintf("2001:db8:%d::%d/64", i, n)),
			}}
		}
		if err := lab.Link(end(balancer, 1), end(station, 2), mtu); err != nil {
			t.Fatal(err)
		}
	}
	k := kernelOf(t, balancer)
	user := func(addr, access string) MobileUser {
		return MobileUser{Addr: netip.MustParseAddr(addr), Access: netip.MustParseAddr(access)}
	}
	for range 2 { // the second time, all routes are there
		near, _, _, err := k.MakeGTP([]MobileUser{
			user("88.88.88.1", "10.10.0.2"), user("88.88.88.2", "10.10.1.2"), user("88.88.88.3", "10.10.2.2"), user("88.88.88.4", "2001:db8:1::2"),
			user("88.88.88.5", "10.10.0.2"), user("88.88.88.5", "10.10.1.2"), user("88.88.88.5", "2001:db8:0::2"),
			user("88.88.88.6", "203.0.113.1"), user("2001:db8:88::1", "10.10.3.2"), user("2001:db8:88::2", "10.10.1.2"),
		})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, r := range must(k.nl.RouteListFiltered(nl.FAMILY_ALL, &nl.Route{LinkIndex: near, Table: gtpTable}, nl.RT_FILTER_OIF|nl.RT_FILTER_TABLE)) {
			if ones, bits := r.Dst.Mask.Size(); ones == bits && r.MTU != 0 {
				got[r.Dst.IP.String()] = r.MTU
			}
		}
		want := map[string]int{
			"88.88.88.1": 1456, "88.88.88.2": 1356, "88.88.88.3": 1456, "88.88.88.4": 1336,
			"88.88.88.5": 1356, "88.88.88.6": 1456, "2001:db8:88::1": 1280, "2001:db8:88::2": 1356,
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("MTUs of routes to users\ngot  %v\nwant %v", got, want)
		}
	}
	if _, _, _, err := k.MakeGTP(nil); err != nil {
		t.Error(err)
	}
}
