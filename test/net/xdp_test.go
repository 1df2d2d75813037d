package net_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"loxilb/internal/netnstest"
	"loxilb/internal/netnstest/labtest"
)

// napi has the other ends of the balancer's veths take frames from XDP: those that are redirected to a veth whose other end
// has neither GRO nor a program are lost.
func napi(t testing.TB, s *netnstest.Standard) {
	t.Helper()
	for _, h := range append([]*netnstest.Host{s.Client}, s.Endpoints[:]...) {
		if _, err := h.Run("ethtool", "-K", "eth0", "gro", "on"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestXDP: with the XDP program in front, transfers are whole, connections open and close, and nothing is dropped. It
// forwards nearly all of what comes with whole checksums, and nothing of what senders leave to a card.
func TestXDP(t *testing.T) {
	t.Parallel()
	const bytes = 10 << 20
	for _, mode := range []string{"native", "generic"} {
		for name, sums := range map[string]func(testing.TB, *netnstest.Standard){
			"whole": offloadsOff, "partial": func(testing.TB, *netnstest.Standard) {},
		} {
			t.Run(mode+" "+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, options{args: []string{"--xdp", mode}, before: func(t testing.TB, s *netnstest.Standard) {
					napi(t, s)
					sums(t, s)
				}})
				r.serveEchoes()
				r.metric("interface_xdp", "interface=client", "mode="+mode)
				for _, vip := range []string{vip4, vip6} {
					if err := thereAndBack(r.dial(join(vip, 7)), bytes); err != nil {
						t.Errorf("%s: %v", vip, err)
					}
					c := dialUDP(t, r, join(vip, 53))
					for i := range 20 {
						if _, err := datagram(c, fmt.Sprint("hello ", i)); err != nil {
							t.Errorf("%s by UDP: %v", vip, err)
						}
					}
				}
				r.wantClosed(2)
				r.wantNoDrops()
				for _, h := range append([]*netnstest.Host{r.Client}, r.Endpoints[:]...) {
					if n := checksumErrors(t, h); n > 0 {
						t.Errorf("%s has got %d packets with wrong sums", h.Name, n)
					}
				}
				forwarded := r.metric("xdp_forwarded_packets_total")
				t.Logf("XDP forwarded %v packets", forwarded)
				if name == "partial" && forwarded > 0 {
					t.Errorf("XDP forwarded %v packets whose checksum was still owed", forwarded)
				}
				if least := float64(4 * bytes / 1460); name == "whole" && forwarded < least*0.9 {
					t.Errorf("XDP forwarded %v packets, not the %v of the data", forwarded, least)
				}
			})
		}
	}
}

// thereAndBack sends a stream to an echo server, and wants it back, whole.
func thereAndBack(c *net.TCPConn, bytes int64) error {
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(c, newStream(bytes, 3))
		sent <- err
	}()
	got, err := digestOf(io.LimitReader(c, bytes))
	want, _ := digestOf(newStream(bytes, 3))
	if err == nil && got != want {
		err = fmt.Errorf("%+v came back, not %+v", got, want)
	}
	return errors.Join(err, <-sent, c.Close())
}

// serveEchoes makes services of all endpoints, at port 7 for TCP and at port 53 for UDP.
func (r *rig) serveEchoes() {
	r.t.Helper()
	r.serveUDPEcho()
	for _, h := range r.Endpoints {
		if err := h.ServeTCP(":5001", netnstest.Echo); err != nil {
			r.t.Fatal(err)
		}
	}
	for vip, endpoints := range map[string]string{vip4: endpoints4(), vip6: endpoints6()} {
		r.loxicmd("create lb %s --tcp=7:5001 --endpoints=%s", vip, endpoints)
		r.loxicmd("create lb %s --udp=53:5353 --endpoints=%s", vip, endpoints)
	}
}

// wantClosed waits until so many TCP connections have been closed by both sides, and no other is there.
func (r *rig) wantClosed(n int) {
	r.t.Helper()
	labtest.Eventually(r.t, patience, func(context.Context) error {
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

// wantNoDrops fails the test if any packet was dropped.
func (r *rig) wantNoDrops() {
	r.t.Helper()
	page, err := r.metrics()
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "loxilb_drops_total{") && !strings.HasSuffix(strings.TrimSpace(line), " 0") {
			r.t.Errorf("dropped: %s", line)
		}
	}
}
