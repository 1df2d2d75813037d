package net_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"loxilb/internal/netnstest"
	"loxilb/internal/netnstest/labtest"
)

// serveSources has every endpoint tell on :7000, over TCP and UDP, the address and port that it sees its peer at, to
// whoever sends a line, again and again.
func serveSources(r *rig) {
	r.t.Helper()
	for _, h := range r.Endpoints {
		r.serveSource(h, ":7000", ":7000")
	}
}

// serveSource has one host do so, at an address for TCP and some for UDP.
func (r *rig) serveSource(h *netnstest.Host, tcp string, udp ...string) {
	r.t.Helper()
	err := h.ServeTCP(tcp, func(c *net.TCPConn) {
		buf := make([]byte, 64)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
			if _, err := fmt.Fprintf(c, "%s", c.RemoteAddr()); err != nil {
				return
			}
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, address := range udp {
		u, err := h.ListenPacket("udp", address)
		if err != nil {
			r.t.Fatal(err)
		}
		r.lab().Cleanup(func() { _ = u.Close() })
		go func() {
			buf := make([]byte, 64)
			for {
				_, from, err := u.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = u.WriteTo([]byte(from.String()), from)
			}
		}()
	}
}

// whoami asks the endpoint behind a connection for the address that it sees.
func whoami(c net.Conn) (string, error) {
	var last error
	for range 3 { // UDP may lose
		if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return "", err
		}
		if _, err := c.Write([]byte("who am I?\n")); err != nil {
			return "", err
		}
		buf := make([]byte, 64)
		n, err := c.Read(buf)
		if err == nil {
			host, _, err := net.SplitHostPort(string(buf[:n]))
			return strings.TrimPrefix(host, "::ffff:"), err
		}
		last = err
		if c.LocalAddr().Network() == "tcp" {
			break
		}
	}
	return "", last
}

// sees opens a connection of a host and wants the endpoint to see a certain address.
func (r *rig) sees(from *netnstest.Host, network, address, want string) net.Conn {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	c, err := from.DialContext(ctx, network, address)
	if err != nil {
		r.t.Errorf("%s %s: %v", network, address, err)
		return nil
	}
	r.lab().Cleanup(func() { _ = c.Close() })
	got, err := whoami(c)
	if err != nil || got != want {
		r.t.Errorf("%s %s: the endpoint sees %q, want %s: %v", network, address, got, want, err)
	}
	return c
}

// TestModes: in each mode, over TCP and UDP, IPv4 and IPv6, the endpoint sees the address that it should, and the
// client, whose socket takes answers from no other address, sees the VIP. The mode changes under the feet of
// connections, which go on in theirs.
func TestModes(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	serveSources(r)
	families := []struct{ vip, any, host, endpoint, client, towards, own string }{
		{vip4, "0.0.0.0", "100.100.100.254", "31.31.31.1", "100.100.100.1", "31.31.31.254", "20.20.20.77"},
		{vip6, "::", "2001:db8:100::fe", "[2001:db8:31::1]", "2001:db8:100::1", "2001:db8:31::fe", "2001:db8:20::77"},
	}
	type open struct {
		net.Conn
		sees string
	}
	var opened []open
	for _, f := range families {
		for _, network := range []string{"tcp", "udp"} {
			for _, m := range []struct{ flags, sees string }{
				{"--mode=onearm", f.towards},
				{"--mode=fullnat", f.vip},
				{"--mode=fullnat --snat=" + f.own, f.own},
				{"--mode=onearm --snat=" + f.own, f.own},
				{"--mode=default", f.client},
				{"--mode=onearm", f.towards},
			} {
				r.loxicmd("create lb %s --%s=7000:7000 --endpoints=%s:1 %s", f.vip, network, f.endpoint, m.flags)
				opened = append(opened, open{r.sees(r.Client, network, join(f.vip, 7000), m.sees), m.sees})
			}
			r.loxicmd("create lb %s --%s=7001:7000 --endpoints=%s:1 --mode=hostonearm", f.any, network, f.endpoint)
			opened = append(opened, open{r.sees(r.Client, network, join(f.host, 7001), f.towards), f.towards})
		}
	}
	for _, c := range opened {
		if c.Conn == nil {
			continue
		}
		if got, err := whoami(c); err != nil || got != c.sees {
			t.Errorf("%s to %s: the endpoint sees %q, saw %s before the mode changed: %v", c.LocalAddr(), c.RemoteAddr(), got, c.sees, err)
		}
	}
	if ct := r.loxicmd("get ct"); !strings.Contains(ct, "fdnat-31.31.31.1:7000") || !strings.Contains(ct, "fsnat-") {
		t.Errorf("get ct does not tell:\n%s", ct)
	}
}

// TestHairpin: an endpoint uses the services that it is behind itself.
func TestHairpin(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	serveSources(r)
	for _, f := range []struct{ vip, endpoint, other, self, towards string }{
		{vip4, "31.31.31.1", "32.32.32.1", "31.31.31.1", "31.31.31.254"},
		{vip6, "[2001:db8:31::1]", "[2001:db8:32::1]", "2001:db8:31::1", "2001:db8:31::fe"},
	} {
		for _, network := range []string{"tcp", "udp"} {
			r.loxicmd("create lb %s --%s=7000:7000 --endpoints=%s:1", f.vip, network, f.endpoint)
			r.loxicmd("create lb %s --%s=7001:7000 --endpoints=%s:1", f.vip, network, f.other)
			r.loxicmd("create lb %s --%s=7002:7000 --endpoints=%s:1 --mode=onearm", f.vip, network, f.endpoint)
			r.sees(r.Endpoints[0], network, join(f.vip, 7000), f.vip)
			r.sees(r.Endpoints[0], network, join(f.vip, 7001), f.self)
			r.sees(r.Endpoints[0], network, join(f.vip, 7002), f.towards)
		}
	}
}

// TestSourceFollows: the load balancer's address towards the endpoints changes, and new connections have the new one.
func TestSourceFollows(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	serveSources(r)
	r.loxicmd("create lb %s --tcp=7000:7000 --endpoints=31.31.31.1:1 --mode=onearm", vip4)
	r.loxicmd("create lb 0.0.0.0 --tcp=7001:7000 --endpoints=31.31.31.1:1 --mode=hostonearm")
	r.sees(r.Client, "tcp", join(vip4, 7000), "31.31.31.254")
	if err := r.LB.AddAddress("ep1", prefix("31.31.31.200/24")); err != nil {
		t.Fatal(err)
	}
	if out, err := r.LB.Run("ip", "route", "replace", "31.31.31.0/24", "dev", "ep1", "src", "31.31.31.200"); err != nil {
		t.Fatal(out, err)
	}
	for _, address := range []string{join(vip4, 7000), "31.31.31.200:7001"} {
		labtest.Eventually(t, patience, func(ctx context.Context) error {
			c, err := r.Client.DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			defer c.Close()
			if got, err := whoami(c); err != nil || got != "31.31.31.200" {
				return fmt.Errorf("%s: the endpoint sees %q: %w", address, got, err)
			}
			return nil
		})
	}
}
