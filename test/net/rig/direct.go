package rig

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// ConfigureDirectReturn adds the VIPs to lo of every endpoint, and a link from each endpoint to the
// client for answers.
func ConfigureDirectReturn(t testing.TB, s *netnstest.Standard) {
	t.Helper()
	for i, h := range s.Endpoints {
		here, there := Prefix(fmt.Sprintf("10.77.%d.1/30", i)), Prefix(fmt.Sprintf("10.77.%d.2/30", i))
		here6, there6 := Prefix(fmt.Sprintf("2001:db8:77:%d::1/64", i)), Prefix(fmt.Sprintf("2001:db8:77:%d::2/64", i))
		err := s.Link(netnstest.End{Host: h, Interface: "direct", Addresses: []netip.Prefix{here, here6}},
			netnstest.End{Host: s.Client, Interface: h.Name, Addresses: []netip.Prefix{there, there6}}, 0)
		for _, r := range []struct {
			to  string
			via netip.Prefix
		}{{"100.100.100.1/32", there}, {"2001:db8:100::1/128", there6}} {
			if err == nil {
				err = h.AddRoute(Prefix(r.to), r.via.Addr())
			}
		}
		for _, vip := range []string{VIP4 + "/32", VIP6 + "/128"} {
			if err == nil {
				err = h.AddAddress("lo", Prefix(vip))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ServeSourcesAt starts the servers of ServeSource on every endpoint, at port 7000 of VIPs.
func ServeSourcesAt(r *Rig, vips ...string) {
	r.T.Helper()
	for _, h := range r.Endpoints {
		for _, vip := range vips {
			r.ServeSource(h, Join(vip, 7000), Join(vip, 7000))
		}
	}
}

// Decapsulate starts an agent on every endpoint. It removes the outer headers of packets from the
// given prefixes.
func Decapsulate(r *Rig, from string) {
	r.T.Helper()
	for _, h := range r.Endpoints {
		p, err := h.Start(netnstest.Command{Args: []string{
			Program("loxilb"), "agent", "--decap", "--interface=eth0", "--vip=" + VIP4 + "," + VIP6, "--from=" + from,
		}})
		if err != nil {
			r.T.Fatal(err)
		}
		labtest.Eventually(r.T, Patience, func(context.Context) error {
			if !strings.Contains(p.Output(), "decapsulating packets") {
				return errors.New(p.Output())
			}
			return nil
		})
		r.T.Cleanup(func() {
			if r.T.Failed() {
				r.T.Logf("agent of %s:\n%s", h.Name, p.Output())
			}
		})
	}
}
