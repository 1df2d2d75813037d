package network_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// TestLayer3 checks that clients behind an interface without a link layer, such as tun or
// WireGuard, reach endpoints on Ethernet and get their replies, whether or not the kernel has
// resolved the endpoints' addresses.
func TestLayer3(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Before: tunPair})
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=2020:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create lb %s --tcp=2020:5001 --endpoints=%s", rig.VIP6, rig.Endpoints6())
	r.Loxicmd("create lb %s --tcp=2021:5001 --syn-protect=always --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create lb %s --tcp=2021:5001 --syn-protect=always --endpoints=%s", rig.VIP6, rig.Endpoints6())
	for _, vip := range []string{rig.VIP4, rig.VIP6} {
		r.WantAnswers(rig.Join(vip, 2021), "ep1", "ep2")
	}
	if n := r.Metric("syn_challenges_answered_total"); n != 2 {
		t.Errorf("%v challenges were answered, want one of each IP version", n)
	}
	for vip, client := range map[string]string{rig.VIP4: "10.9.0.2", rig.VIP6: "2001:db8:9::2"} {
		r.WantAnswers(rig.Join(vip, 2020), "ep1", "ep2", "ep3", "ep1")
		if who, err := r.Ask(rig.Join(vip, 2020)); err != nil || who != "ep2 sees "+client {
			t.Errorf("answer %q, error %v; want %q", who, err, "ep2 sees "+client)
		}
	}
}

// tunPair connects the client to the balancer by a pair of tun devices, and routes packets from the
// client to the VIPs through them.
func tunPair(t testing.TB, s *netnstest.Standard) {
	t.Helper()
	client, err := s.Client.OpenTun("tun0", unix.IFF_TUN)
	if err != nil {
		t.Fatal(err)
	}
	lb, err := s.LB.OpenTun("tun0", unix.IFF_TUN)
	if err != nil {
		t.Fatal(err)
	}
	s.Cleanup(func() {
		_ = client.Close()
		_ = lb.Close()
	})
	go copyPackets(client, lb)
	go copyPackets(lb, client)
	for h, commands := range map[*netnstest.Host][]string{
		s.Client: {"10.9.0.2/24", "2001:db8:9::2/64"},
		s.LB:     {"10.9.0.1/24", "2001:db8:9::1/64"},
	} {
		for _, a := range commands {
			rig.MustRun(t, h, "ip", "address", "add", a, "dev", "tun0", "nodad")
		}
		rig.MustRun(t, h, "ip", "link", "set", "tun0", "up")
	}
	rig.MustRun(t, s.Client, "ip", "route", "add", rig.VIP4+"/32", "dev", "tun0")
	rig.MustRun(t, s.Client, "ip", "-6", "route", "add", rig.VIP6+"/128", "dev", "tun0")
}

// copyPackets copies packets from one device to the other until one of them is closed.
func copyPackets(from, to *os.File) {
	packet := make([]byte, 65536)
	for {
		n, err := from.Read(packet)
		if err != nil {
			return
		}
		_, _ = to.Write(packet[:n]) // fails while the device is down
	}
}
