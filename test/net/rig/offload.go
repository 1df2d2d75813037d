package rig

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"loxilb/test/netnstest"
)

// ChecksumErrors returns how many TCP segments and UDP datagrams a host has dropped for wrong
// checksums.
func ChecksumErrors(t testing.TB, h *netnstest.Host) int {
	t.Helper()
	return counterOf(t, h, "InCsumErrors")
}

// Retransmitted returns how many TCP segments a host has retransmitted.
func Retransmitted(t testing.TB, h *netnstest.Host) int {
	t.Helper()
	return counterOf(t, h, "RetransSegs") // both versions of IP
}

// counterOf returns the sum of a host's kernel counters whose names end with name: the names of
// IPv6 counters have a prefix.
func counterOf(t testing.TB, h *netnstest.Host, name string) (n int) {
	t.Helper()
	all, err := Counters(h, "snmp", "snmp6")
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range all {
		if strings.HasSuffix(k, name) {
			n += v
		}
	}
	return n
}

// Counters returns the counters in files of a host's /proc/net, by name.
func Counters(h *netnstest.Host, files ...string) (map[string]int, error) {
	var all strings.Builder
	err := h.Do(func() error {
		for _, file := range files {
			text, err := os.ReadFile("/proc/thread-self/net/" + file)
			if err != nil {
				return err
			}
			all.Write(text)
		}
		return nil
	})
	return ParseCounters(all.String()), err
}

// ParseCounters returns the sum of the counters of each name. snmp and netstat have a line of names
// before each line of values, snmp6 has a name and a value in each line.
func ParseCounters(text string) map[string]int {
	all := map[string]int{}
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case names != nil:
			for i, f := range fields[1:] {
				v, _ := strconv.Atoi(f)
				all[names[i+1]] += v
			}
			names = nil
		case len(fields) == 2:
			v, _ := strconv.Atoi(fields[1])
			all[fields[0]] += v
		default:
			names = fields
		}
	}
	return all
}

// DisableOffloads disables the checksum and segmentation offloads of every host.
func DisableOffloads(t testing.TB, s *netnstest.Standard) {
	t.Helper()
	for _, h := range append([]*netnstest.Host{s.Client}, s.Endpoints[:]...) {
		if _, err := h.Run("ethtool", "-K", "eth0", "tx", "off", "gso", "off", "tso", "off"); err != nil {
			t.Fatal(err)
		}
	}
}

// TunnelClient routes packets from the client to VIPs through a VXLAN tunnel to the balancer. The
// outer headers have UDP checksums.
func TunnelClient(t testing.TB, s *netnstest.Standard) {
	t.Helper()
	client := netnstest.StandardNetworks()[0]
	for _, side := range []struct {
		host       *netnstest.Host
		link       string
		from, to   netip.Addr
		addresses  [2]string
		otherSides [2]string
	}{
		{s.Client, "eth0", client.V4.Addr(), client.GW4, [2]string{"60.60.60.1/24", "2001:db8:60::1/64"}, [2]string{"60.60.60.254", "2001:db8:60::fe"}},
		{s.LB, "client", client.GW4, client.V4.Addr(), [2]string{"60.60.60.254/24", "2001:db8:60::fe/64"}, [2]string{}},
	} {
		under, err := side.host.Netlink().LinkByName(side.link)
		if err != nil {
			t.Fatal(err)
		}
		err = side.host.Netlink().LinkAdd(&netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: "vx0", MTU: 1400},
			VxlanId:   60, VtepDevIndex: under.Attrs().Index, Port: 4789,
			SrcAddr: net.IP(side.from.AsSlice()), Group: net.IP(side.to.AsSlice()), UDPCSum: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range side.addresses {
			if err := side.host.AddAddress("vx0", Prefix(a)); err != nil {
				t.Fatal(err)
			}
		}
		if err := side.host.Up("vx0"); err != nil {
			t.Fatal(err)
		}
	}
	for vip, via := range map[string]string{"20.20.20.0/24": "60.60.60.254", "2001:db8:20::/64": "2001:db8:60::fe"} {
		if err := s.Client.AddRoute(Prefix(vip), netip.MustParseAddr(via)); err != nil {
			t.Fatal(err)
		}
	}
}
