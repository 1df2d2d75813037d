package net_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// TestUDP: a flow stays with its endpoint, flows go round, and the answers come from the VIP (a connected socket
// takes no others), whatever their size.
func TestUDP(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.serveUDPEcho()
	r.loxicmd("create lb %s --udp=53:5353 --endpoints=%s", vip4, endpoints4())
	r.loxicmd("create lb %s --udp=53:5353 --endpoints=%s", vip6, endpoints6())
	for _, vip := range []string{vip4, vip6} {
		for i := range 6 {
			c := dialUDP(t, r, join(vip, 53))
			want := r.Endpoints[i%3].Name + ": "
			for _, size := range []int{1, 100, 1400} {
				got, err := datagram(c, strings.Repeat("x", size))
				if err != nil {
					t.Fatalf("%s flow %d size %d: %v", vip, i, size, err)
				}
				if got != want+strings.Repeat("x", size) {
					t.Errorf("%s flow %d size %d: got %d bytes, %.10q, want those of %s", vip, i, size, len(got), got, want)
				}
			}
		}
	}
}

// TestUDPManyFlows: each new flow is one step of round robin.
func TestUDPManyFlows(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.serveUDPEcho()
	r.loxicmd("create lb %s --udp=53:5353 --endpoints=%s", vip4, endpoints4())
	counts := map[string]int{}
	for i := range 300 {
		c := dialUDP(t, r, join(vip4, 53))
		got, err := datagram(c, fmt.Sprint(i))
		if err != nil {
			t.Fatalf("flow %d: %v", i, err)
		}
		name, rest, _ := strings.Cut(got, ": ")
		if rest != fmt.Sprint(i) {
			t.Errorf("flow %d: answer %q", i, got)
		}
		counts[name]++ // its socket stays open: the port of a closed one may be drawn again, as the same flow
	}
	for _, h := range r.Endpoints {
		if counts[h.Name] != 100 {
			t.Errorf("300 flows were shared as %v", counts)
		}
	}
}

func dialUDP(t testing.TB, r *rig, address string) net.Conn {
	t.Helper()
	c, err := r.Client.DialContext(context.Background(), "udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// datagram sends one and returns the answer; it repeats itself, as UDP may lose.
func datagram(c net.Conn, text string) (string, error) {
	var last error
	for range 3 {
		if _, err := c.Write([]byte(text)); err != nil {
			return "", err
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return "", err
		}
		buf := make([]byte, 65536)
		n, err := c.Read(buf)
		if err == nil {
			return string(buf[:n]), nil
		}
		last = err
	}
	return "", last
}
