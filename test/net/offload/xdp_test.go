package offload_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// enableGRO enables GRO at the other ends of the balancer's veths. Without GRO or a program at the
// other end, a veth drops redirected frames.
func enableGRO(t testing.TB, s *netnstest.Standard) {
	t.Helper()
	for _, h := range append([]*netnstest.Host{s.Client}, s.Endpoints[:]...) {
		if _, err := h.Run("ethtool", "-K", "eth0", "gro", "on"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestXDP checks that, with XDP, transfers are intact, connections open and close, and no packet is
// dropped. XDP forwards nearly all packets with complete checksums, and none with partial ones.
func TestXDP(t *testing.T) {
	t.Parallel()
	const bytes = 10 << 20
	for _, c := range []struct {
		mode, sums string
		mtu        int
	}{
		{"native", "whole", 0},
		{"native", "partial", 0},
		{"native", "whole", 9000}, // frames of several buffers, which XDP leaves to tc
		{"generic", "whole", 0},
		{"generic", "partial", 0},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Options{Options: netnstest.Options{MTU: c.mtu}, Args: []string{"--xdp", c.mode}, Before: func(t testing.TB, s *netnstest.Standard) {
				enableGRO(t, s)
				if c.sums == "whole" {
					rig.DisableOffloads(t, s)
				}
			}})
			r.ServeEchoes()
			r.Metric("interface_xdp", "interface=client", "mode="+c.mode)
			for _, vip := range []string{rig.VIP4, rig.VIP6} {
				if err := exchangeStream(r.Dial(rig.Join(vip, 7)), bytes); err != nil {
					t.Errorf("%s: %v", vip, err)
				}
				c := rig.DialUDP(t, r, rig.Join(vip, 53))
				for i := range 20 {
					if _, err := rig.Datagram(c, fmt.Sprint("hello ", i)); err != nil {
						t.Errorf("%s by UDP: %v", vip, err)
					}
				}
			}
			wantClosed(r, 2)
			r.WantNoDrops()
			for _, h := range append([]*netnstest.Host{r.Client}, r.Endpoints[:]...) {
				if n := rig.ChecksumErrors(t, h); n > 0 {
					t.Errorf("%s has received %d packets with wrong checksums", h.Name, n)
				}
			}
			forwarded := r.Metric("xdp_forwarded_packets_total")
			t.Logf("XDP forwarded %v packets", forwarded)
			if c.sums == "partial" && forwarded > 0 {
				t.Errorf("XDP forwarded %v packets with partial checksums, want 0", forwarded)
			}
			if least := float64(4 * bytes / 1460); c.sums == "whole" && c.mtu == 0 && forwarded < least*0.9 {
				t.Errorf("XDP forwarded %v packets, want at least %v", forwarded, least)
			}
		})
	}
}

// exchangeStream sends a stream to an echo server, and checks the echo.
func exchangeStream(c *net.TCPConn, bytes int64) error {
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(c, rig.NewStream(bytes, 3))
		sent <- err
	}()
	got, err := rig.DigestOf(io.LimitReader(c, bytes))
	want, _ := rig.DigestOf(rig.NewStream(bytes, 3))
	if err == nil && got != want {
		err = fmt.Errorf("%+v came back, want %+v", got, want)
	}
	return errors.Join(err, <-sent, c.Close())
}

// wantClosed waits until the table has exactly n TCP connections, all closed by both sides.
func wantClosed(r *rig.Rig, n int) {
	r.T.Helper()
	labtest.Eventually(r.T, rig.Patience, func(context.Context) error {
		out, err := r.Command("get", "ct")
		if err != nil {
			return err
		}
		if tcp, closed := strings.Count(out, "/tcp "), strings.Count(out, "closed"); tcp != closed || closed != 2*n {
			return fmt.Errorf("%d entries, %d of them closed:\n%s", tcp, closed, out)
		}
		return nil
	})
}

// attachedXDP returns how XDP is attached to an interface of the balancer, as `ip link` prints it:
// xdp, xdpgeneric or nothing.
func attachedXDP(r *rig.Rig, name string) string {
	r.T.Helper()
	out, err := r.LB.Run("ip", "link", "show", name)
	if err != nil {
		r.T.Fatal(err)
	}
	for _, word := range strings.Fields(out) {
		if strings.HasPrefix(word, "xdp") {
			return word
		}
	}
	return ""
}

// TestXDPRestart checks that a connection in use continues while the daemon restarts with XDP in
// the same mode, in the other mode, without XDP, and with XDP again, and that --detach removes XDP.
func TestXDPRestart(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Args: []string{"--xdp", "native"}, Before: func(t testing.TB, s *netnstest.Standard) {
		enableGRO(t, s)
		rig.DisableOffloads(t, s)
	}})
	r.ServeEchoes()
	c := r.Dial(rig.Join(rig.VIP4, 7))
	for _, step := range []struct{ mode, want string }{
		{"native", "xdp"}, {"native", "xdp"}, {"generic", "xdpgeneric"}, {"off", ""}, {"generic", "xdpgeneric"}, {"native", "xdp"},
	} {
		if err := rig.Exchange(c, "before "+step.mode); err != nil {
			t.Fatalf("before --xdp %s: %v", step.mode, err)
		}
		r.Kill()
		r.SetArgs("--xdp", step.mode)
		r.Restart()
		if got := attachedXDP(r, "client"); got != step.want {
			t.Errorf("--xdp %s: %q is attached, want %q", step.mode, got, step.want)
		}
		for range 50 {
			if err := rig.Exchange(c, "a line"); err != nil {
				t.Fatalf("--xdp %s: %v", step.mode, err)
			}
		}
		if n := r.Metric("xdp_forwarded_packets_total"); (n >= 90) != (step.want != "") {
			t.Errorf("--xdp %s: XDP has forwarded %v packets", step.mode, n)
		}
	}
	r.WantNoDrops()
	if err := r.DetachAll(); err != nil {
		t.Fatal(err)
	}
	if got := attachedXDP(r, "client"); got != "" {
		t.Errorf("--detach left %q", got)
	}
	if pins := r.Pins(); len(pins) > 0 {
		t.Errorf("still pinned: %v", pins)
	}
}

// TestXDPTarget checks that XDP redirects frames to a veth while its other end accepts them. After
// GRO was disabled there, the connection uses tc.
func TestXDPTarget(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Args: []string{"--xdp", "native"}, Before: rig.DisableOffloads})
	r.ServeEchoes()
	c := r.Dial(rig.Join(rig.VIP4, 7))
	// lines exchanges some lines, and returns how many of their packets XDP forwarded.
	lines := func() float64 {
		before := r.Metric("xdp_forwarded_packets_total")
		for range 20 {
			if err := rig.Exchange(c, "a line"); err != nil {
				t.Fatal(err)
			}
		}
		return r.Metric("xdp_forwarded_packets_total") - before
	}
	if n := lines(); n != 0 {
		t.Errorf("XDP forwarded %v packets to veths that lose them", n)
	}
	for _, gro := range []string{"on", "off", "on"} {
		for _, h := range []*netnstest.Host{r.Client, r.Endpoints[0]} {
			if _, err := h.Run("ethtool", "-K", "eth0", "gro", gro); err != nil {
				t.Fatal(err)
			}
		}
		labtest.Eventually(t, rig.Patience, func(context.Context) error {
			if n := lines(); (n >= 40) != (gro == "on") || gro == "off" && n > 0 {
				return fmt.Errorf("GRO %s: XDP forwarded %v packets", gro, n)
			}
			return nil
		})
	}
}

// TestXDPNewInterface checks that XDP is attached to a new interface, also if it is removed and
// added again.
func TestXDPNewInterface(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Args: []string{"--xdp", "native"}})
	late, err := r.Host("late")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Link(netnstest.End{Host: late, Interface: "eth0"}, netnstest.End{Host: r.LB, Interface: "late"}, 9000); err != nil {
			t.Fatal(err)
		}
		labtest.Eventually(t, rig.Patience, func(context.Context) error {
			if got := attachedXDP(r, "late"); got != "xdp" {
				return fmt.Errorf("%q is attached", got)
			}
			return nil
		})
		link, err := late.Netlink().LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		if err := late.Netlink().LinkDel(link); err != nil {
			t.Fatal(err)
		}
		labtest.Eventually(t, rig.Patience, func(context.Context) error {
			if page, err := r.Metrics(); err != nil || strings.Contains(page, `interface="late"`) {
				return fmt.Errorf("the metrics still have the interface (%w)", err)
			}
			return nil
		})
	}
}

// TestForeignXDP checks that the daemon does not replace a foreign XDP program, that the log names
// the interface, and that connections use tc.
func TestForeignXDP(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Args: []string{"--xdp", "native"}, Before: func(t testing.TB, s *netnstest.Standard) {
		enableGRO(t, s)
		rig.DisableOffloads(t, s)
		attachForeignXDP(t, s.LB, "client")
	}})
	r.ServeEchoes()
	if err := exchangeStream(r.Dial(rig.Join(rig.VIP4, 7)), 1<<20); err != nil {
		t.Error(err)
	}
	if page, err := r.Metrics(); err != nil || strings.Contains(page, `interface_xdp{interface="client"`) {
		t.Errorf("the metrics report a foreign program as loxilb's (%v)", err)
	}
	if log := r.Log(); strings.Count(log, "another XDP program is attached and is left alone") != 1 || !strings.Contains(log, "XDP is not attached to client") {
		t.Errorf("the log must report the foreign XDP program once, and that XDP is not attached:\n%s", log)
	}
	out, err := r.LB.Run("ip", "-d", "link", "show", "client")
	if err != nil || !strings.Contains(out, "name other ") {
		t.Errorf("the foreign program is not attached: %v\n%s", err, out)
	}
}

// attachForeignXDP attaches an XDP program that passes all packets.
func attachForeignXDP(t testing.TB, h *netnstest.Host, name string) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "other", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	err = h.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetXdpFdWithFlags(link, prog.FD(), unix.XDP_FLAGS_DRV_MODE)
	})
	if err != nil {
		t.Fatal(err)
	}
}
