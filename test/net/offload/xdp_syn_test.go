package offload_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// driverXDPCount returns a counter of the driver of one of the balancer's interfaces: what is the
// XDP action.
func driverXDPCount(r *rig.Rig, name, what string) (sum int) {
	r.T.Helper()
	out, err := r.LB.Run("ethtool", "-S", name)
	if err != nil {
		r.T.Fatal(err)
	}
	for line := range strings.Lines(out) {
		counter, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if !strings.HasPrefix(counter, "rx_queue_") || !strings.HasSuffix(counter, "_"+what) {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			r.T.Fatal(err)
		}
		sum += n
	}
	return sum
}

// TestXDPSYN checks that, with XDP, an unknown client is challenged and connects, and that SYNs of
// a denied client are dropped. The XDP program does both, except for a SYN with a partial checksum:
// the program at the tc hook challenges its client.
func TestXDPSYN(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mode, sums string }{
		{"native", "whole"}, {"native", "partial"}, {"generic", "whole"}, {"generic", "partial"},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Options{Args: []string{"--xdp", c.mode}, Before: func(t testing.TB, s *netnstest.Standard) {
				enableGRO(t, s)
				if c.sums == "whole" {
					rig.DisableOffloads(t, s)
				}
			}})
			r.ServeNames()
			r.Metric("interface_xdp", "interface=client", "mode="+c.mode)
			for _, s := range []struct{ vip, all, endpoints string }{{rig.VIP4, "0.0.0.0/0", rig.Endpoints4()}, {rig.VIP6, "::/0", rig.Endpoints6()}} {
				r.Loxicmd("create lb %s --tcp=2020:5001 --syn-protect=always --endpoints=%s", s.vip, s.endpoints)
				r.Loxicmd("create lb %s --tcp=2021:5001 --deny=%s --endpoints=%s", s.vip, s.all, s.endpoints)
			}
			for i, vip := range []string{rig.VIP4, rig.VIP6} {
				before := rig.Retransmitted(t, r.Client)
				r.Dial(rig.Join(vip, 2020))
				if n := rig.Retransmitted(t, r.Client) - before; n != 1 {
					t.Errorf("%s: the client retransmitted its SYN %d times, want once after the challenge", vip, n)
				}
				if sent := r.Metric("syn_challenges_total"); sent != float64(i+1) {
					t.Errorf("%s: %v challenges were sent, want %d", vip, sent, i+1)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				if _, err := r.Client.DialContext(ctx, "tcp", rig.Join(vip, 2021)); err == nil {
					t.Errorf("%s: a denied client has connected", vip)
				}
				cancel()
			}
			if n := r.Metric("drops_total", "reason=source-denied"); n < 2 {
				t.Errorf("%v SYNs are counted as denied, want two", n)
			}
			if c.mode != "native" {
				return // the kernel does not count these
			}
			want := map[string]int{"whole": 2, "partial": 0}[c.sums]
			if n := driverXDPCount(r, "client", "xdp_redirect"); n != want {
				t.Errorf("XDP sent %d challenges, want %d", n, want)
			}
			if n := driverXDPCount(r, "client", "xdp_drops"); n < 2 {
				t.Errorf("XDP dropped %d SYNs, want two", n)
			}
		})
	}
}
