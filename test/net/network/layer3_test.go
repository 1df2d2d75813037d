package network_test

import (
	"context"
	"errors"
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
	wantRefusedByEthernet(t, r)
}

// wantRefusedByEthernet checks that a refused client gets its RST by Ethernet, if its packets come
// by tun and have an address of its Ethernet.
func wantRefusedByEthernet(t *testing.T, r *rig.Rig) {
	t.Helper()
	rig.MustRun(t, r.Client, "ip", "route", "replace", rig.VIP4+"/32", "dev", "tun0", "src", "100.100.100.1")
	r.Loxicmd("create lb %s --tcp=2022:5001 --client-connections=1 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.Dial(rig.Join(rig.VIP4, 2022))
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	c, err := r.Client.DialContext(ctx, "tcp", rig.Join(rig.VIP4, 2022))
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a second connection ends with %v, want %v", err, unix.ECONNREFUSED)
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
