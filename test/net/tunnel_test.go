package net_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/internal/netnstest"
	"loxilb/internal/netnstest/labtest"
	"loxilb/internal/pkt"
)

// decapsulate has every endpoint take outer headers off.
func decapsulate(r *rig, from string) {
	r.t.Helper()
	for _, h := range r.Endpoints {
		p, err := h.Start(netnstest.Command{Args: []string{
			filepath.Join(os.Getenv(binDir), "loxilb"), "agent", "--decap", "--interface=eth0", "--vip=" + vip4 + "," + vip6, "--from=" + from,
		}})
		if err != nil {
			r.t.Fatal(err)
		}
		labtest.Eventually(r.t, patience, func(context.Context) error {
			if !strings.Contains(p.Output(), "outer headers are taken off") {
				return errors.New(p.Output())
			}
			return nil
		})
		r.t.Cleanup(func() {
			if r.t.Failed() {
				r.t.Logf("agent of %s:\n%s", h.Name, p.Output())
			}
		})
	}
}

// TestTunnels: IPv4 and IPv6 in IPv4 and IPv6, with and without UDP, for TCP and UDP: the endpoint sees the client's
// address, the wire an outer header, and megabytes go through though they no longer fit the link as they are.
func TestTunnels(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	r := newRig(t, options{before: directReturn})
	serveAt(r, vip4, vip6)
	for _, h := range r.Endpoints {
		if err := h.ServeTCP(":7001", serveTransfer(size)); err != nil {
			t.Fatal(err)
		}
	}
	decapsulate(r, "198.18.0.0/15,100::/64,31.31.31.254,2001:db8:31::fe")
	for _, vip := range []struct{ addr, client string }{{vip4, "100.100.100.1"}, {vip6, "2001:db8:100::1"}} {
		for _, endpoint := range []string{"31.31.31.1", "2001:db8:31::1"} {
			for _, tunnel := range []string{"ipip", "gue"} {
				t.Logf("%s over %s to %s", vip.addr, tunnel, endpoint)
				tunnelled(r, vip.addr, vip.client, endpoint, tunnel)
				if err := transfer(r.dial(join(vip.addr, 7001)), size); err != nil {
					t.Errorf("%s over %s to %s: %v", vip.addr, tunnel, endpoint, err)
				}
			}
		}
	}
}

// tunnelled makes services and wants their packets in outer headers.
func tunnelled(r *rig, vip, client, endpoint, tunnel string) {
	r.t.Helper()
	wire := capture(r.t, r.Endpoints[0], "eth0")
	r.loxicmd("create lb %s --tcp=7000:7000,7001:7001 --udp=7000:7000 --endpoints=%s --mode=dsr --tunnel=%s", vip, bracket(endpoint)+":1", tunnel)
	for _, network := range []string{"tcp", "udp"} {
		c := r.sees(r.Client, network, join(vip, 7000), client)
		if c == nil {
			continue
		}
		captured(r.t, wire, fmt.Sprintf("%s of %s in %s", network, vip, tunnel), func(frame []byte, _ *pkt.Packet) bool {
			return outer(frame, c.LocalAddr().String(), endpoint, tunnel)
		})
		if network == "udp" && !strings.Contains(r.loxicmd("get ct --proto=udp --vip=%s", vip), "ddsr-"+join(endpoint, 7000)) {
			r.t.Errorf("get ct does not tell of %s", endpoint)
		}
	}
}

// outer tells whether a frame is a packet of the client's in the outer header that it should have.
func outer(frame []byte, client, endpoint, tunnel string) bool {
	size, proto, version := 34, frame[23], frame[14]>>4
	if strings.Contains(endpoint, ":") {
		if size, proto = 54, frame[20]; version != 6 || !bytes.Equal(frame[38:54], prefix(endpoint+"/128").Addr().AsSlice()) {
			return false
		}
	} else if version != 4 || !bytes.Equal(frame[30:34], prefix(endpoint+"/32").Addr().AsSlice()) {
		return false
	}
	if tunnel == "gue" {
		if proto != 17 || frame[size+2] != 6080>>8 || frame[size+3] != 6080&0xff {
			return false
		}
		size += 8
	} else if proto != 4 && proto != 41 {
		return false
	}
	ethertype := []byte{0x08, 0x00}
	if frame[size]>>4 == 6 {
		ethertype = []byte{0x86, 0xdd}
	}
	inner := pkt.Decode(append(append(make([]byte, 12), ethertype...), frame[size:]...))
	return inner.SrcAddr().String() == client
}
