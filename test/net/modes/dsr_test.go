package modes_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/pkt"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// openCaptureSocket opens a socket that receives the frames of an interface.
func openCaptureSocket(t testing.TB, h *netnstest.Host, name string) int {
	t.Helper()
	fd := -1
	err := h.Do(func() (err error) {
		const all = 0x0300 // ETH_P_ALL in network byte order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		i, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index})
	})
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(rig.Patience / time.Second)})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// awaitFrame reads frames until want returns true for one of them.
func awaitFrame(t testing.TB, fd int, what string, want func(frame []byte, p *pkt.Packet) bool) {
	t.Helper()
	buf := make([]byte, 1<<16)
	var seen []string
	for deadline := time.Now().Add(rig.Patience); time.Now().Before(deadline); {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			break
		}
		p := pkt.Decode(buf[:n])
		if want(buf[:n], p) {
			return
		}
		seen = append(seen, p.String())
	}
	t.Errorf("no %s; seen:\n%s", what, strings.Join(seen, "\n"))
}

// TestDSR checks that the endpoint sees the client's address and the VIP, and that its replies
// bypass the load balancer. The client's socket accepts only replies from the VIP.
func TestDSR(t *testing.T) {
	t.Parallel()
	r := rig.SharedAfter(t, rig.ConfigureDirectReturn)
	rig.ServeSourcesAt(r, rig.VIP4, rig.VIP6)
	mac, err := r.Endpoints[0].MAC("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct{ vip, endpoint, client string }{
		{rig.VIP4, "31.31.31.1", "100.100.100.1"},
		{rig.VIP6, "[2001:db8:31::1]", "2001:db8:100::1"},
	} {
		for _, network := range []string{"tcp", "udp"} {
			wire := openCaptureSocket(t, r.Endpoints[0], "eth0")
			r.Loxicmd("create lb %s --%s=7000:7000 --endpoints=%s:1 --mode=dsr", f.vip, network, f.endpoint)
			c := r.WantSource(r.Client, network, rig.Join(f.vip, 7000), f.client)
			if c == nil {
				continue
			}
			awaitFrame(t, wire, "packet that the client sent", func(frame []byte, p *pkt.Packet) bool {
				return string(frame[:6]) == string(mac) && p.SrcAddr().String() == c.LocalAddr().String() &&
					p.DstAddr().String() == c.RemoteAddr().String()
			})
			if _, err := rig.AskSource(c); err != nil { // one more datagram establishes the flow
				t.Error(err)
			}
			// connections of earlier tests may be left: a balancer does not see the endpoint's FIN
			ct := r.Loxicmd("get ct --proto=%s --vip=%s", network, f.vip)
			port := fmt.Sprintf("| %d |", netip.MustParseAddrPort(c.LocalAddr().String()).Port())
			var own []string
			for line := range strings.Lines(ct) {
				if strings.Contains(line, port) {
					own = append(own, line)
				}
			}
			if len(own) != 1 || !strings.Contains(own[0], "ddsr-"+f.endpoint+":7000:w1") || !strings.Contains(own[0], "est") {
				t.Errorf("get ct shows %q of the connection from port %s\n%s", own, port, ct)
			}
		}
	}
}

// TestDSRInLine checks that replies through the load balancer reach the client, also over a link
// with a smaller MTU than that of the endpoints.
func TestDSRInLine(t *testing.T) {
	t.Parallel()
	const bytes = 16 << 20
	r := rig.New(t, rig.Options{Before: func(t testing.TB, s *netnstest.Standard) {
		for _, h := range s.Endpoints {
			for _, vip := range []string{rig.VIP4 + "/32", rig.VIP6 + "/128"} {
				if err := h.AddAddress("lo", rig.Prefix(vip)); err != nil {
					t.Fatal(err)
				}
			}
		}
		rig.MustRun(t, s.LB, "ip", "link", "set", "client", "mtu", "1400")
	}})
	r.ServeNames()
	rig.ServeSourcesAt(r, rig.VIP4, rig.VIP6)
	for _, h := range r.Endpoints {
		if err := h.ServeTCP(":7001", rig.ServeTransfer(bytes)); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []struct{ vip, endpoints, client string }{
		{rig.VIP4, rig.Endpoints4(), "100.100.100.1"}, {rig.VIP6, rig.Endpoints6(), "2001:db8:100::1"},
	} {
		r.Loxicmd("create lb %s --tcp=5001:5001 --mode=dsr --endpoints=%s", f.vip, f.endpoints)
		r.Loxicmd("create lb %s --tcp=7000-7001:7000-7001 --mode=dsr --endpoints=%s", f.vip, f.endpoints)
		r.Loxicmd("create lb %s --udp=7000:7000 --mode=dsr --endpoints=%s", f.vip, f.endpoints)
		r.WantAnswers(rig.Join(f.vip, 5001), "ep1", "ep2", "ep3", "ep1")
		for _, network := range []string{"tcp", "udp"} {
			r.WantSource(r.Client, network, rig.Join(f.vip, 7000), f.client)
		}
		if err := rig.Transfer(r.Dial(rig.Join(f.vip, 7001)), bytes); err != nil {
			t.Errorf("%s: %v", f.vip, err)
		}
	}
}

// TestDSRAlgorithms checks that every algorithm distributes connections in mode dsr as in other
// modes, and that algorithm lc counts them until they end.
func TestDSRAlgorithms(t *testing.T) {
	t.Parallel()
	r := rig.SharedAfter(t, rig.ConfigureDirectReturn)
	r.ServeNames()
	at := rig.Join(rig.VIP4, 5001)
	create := "create lb " + rig.VIP4 + " --tcp=5001:5001 --mode=dsr --endpoints=%s --select=%s"
	r.Loxicmd(create, rig.Endpoints4(), "rr")
	r.WantAnswers(at, "ep1", "ep2", "ep3", "ep1", "ep2", "ep3")
	for _, algorithm := range []string{"priority", "hash", "persist", "random", "lc"} {
		r.Loxicmd(create, rig.Endpoints4(), algorithm)
		seen := map[string]int{}
		for range 40 {
			who, err := r.Ask(at)
			if err != nil {
				t.Fatalf("%s: %v", algorithm, err)
			}
			name, _, _ := strings.Cut(who, " ")
			seen[name]++
		}
		if (len(seen) == 1) != (algorithm == "persist") {
			t.Errorf("%s: answered by %v", algorithm, seen)
		}
	}
}

// TestDSRTransfer transfers 64 MiB in both directions in packets of the largest size that offloads
// allow.
func TestDSRTransfer(t *testing.T) {
	t.Parallel()
	const bytes = 64 << 20
	r := rig.SharedAfter(t, rig.ConfigureDirectReturn)
	for _, h := range r.Endpoints {
		if err := h.ServeTCP(":7000", rig.ServeTransfer(bytes)); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []struct{ vip, endpoint string }{{rig.VIP4, "31.31.31.1"}, {rig.VIP6, "[2001:db8:31::1]"}} {
		r.Loxicmd("create lb %s --tcp=7000:7000 --endpoints=%s:1 --mode=dsr", f.vip, f.endpoint)
		if err := rig.Transfer(r.Dial(rig.Join(f.vip, 7000)), bytes); err != nil {
			t.Errorf("%s: %v", f.vip, err)
		}
	}
}

// TestDSRSurvivesRestart checks that connections continue while no daemon runs, and after its next
// start.
func TestDSRSurvivesRestart(t *testing.T) {
	t.Parallel()
	r := rig.SharedAfter(t, rig.ConfigureDirectReturn)
	rig.ServeSourcesAt(r, rig.VIP4)
	r.Loxicmd("create lb %s --tcp=7000:7000 --endpoints=%s --mode=dsr", rig.VIP4, rig.Endpoints4())
	c := r.WantSource(r.Client, "tcp", rig.Join(rig.VIP4, 7000), "100.100.100.1")
	if c == nil {
		return
	}
	r.Stop()
	if _, err := rig.AskSource(c); err != nil {
		t.Errorf("without the daemon: %v", err)
	}
	r.Restart()
	if _, err := rig.AskSource(c); err != nil {
		t.Errorf("with the next daemon: %v", err)
	}
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if ct := r.Loxicmd("get ct"); !strings.Contains(ct, "ddsr-31.31.31.1:7000") {
			return fmt.Errorf("get ct:\n%s", ct)
		}
		return nil
	})
}
