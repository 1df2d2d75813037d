package offload_test

import (
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// TestChecksums checks that transfers are intact for each state of a packet's checksum in the
// kernel:
//
//	partial   a local sender leaves the checksum to the card (the default of veth)
//	none      senders compute checksums: offloads are off everywhere
//	complete  the kernel has the sum of the whole packet: it comes from a VXLAN tunnel with UDP checksums
//
// In the last case, the checksums on the wire are complete, so an endpoint verifies those that the
// program has updated.
func TestChecksums(t *testing.T) {
	t.Parallel()
	const bytes = 32 << 20
	for name, prepare := range map[string]func(testing.TB, *netnstest.Standard){
		"partial":  func(testing.TB, *netnstest.Standard) {},
		"none":     rig.DisableOffloads,
		"complete": func(t testing.TB, s *netnstest.Standard) { rig.DisableOffloads(t, s); rig.TunnelClient(t, s) },
		"tunnel":   rig.TunnelClient,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Options{Before: prepare})
			for _, h := range r.Endpoints {
				if err := h.ServeTCP(":5001", rig.ServeTransfer(bytes)); err != nil {
					t.Fatal(err)
				}
				if err := h.ServeUDPEcho(":5353"); err != nil {
					t.Fatal(err)
				}
			}
			for _, vip := range []string{rig.VIP4, rig.VIP6} {
				endpoints := rig.Endpoints4()
				if vip == rig.VIP6 {
					endpoints = rig.Endpoints6()
				}
				r.Loxicmd("create lb %s --tcp=9:5001 --endpoints=%s", vip, endpoints)
				r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s", vip, endpoints)
				if err := rig.Transfer(r.Dial(rig.Join(vip, 9)), bytes); err != nil {
					t.Errorf("%s: %v", vip, err)
				}
				if _, err := rig.Datagram(rig.DialUDP(t, r, rig.Join(vip, 53)), "hello"); err != nil {
					t.Errorf("%s by UDP: %v", vip, err)
				}
			}
			for _, h := range append([]*netnstest.Host{r.Client}, r.Endpoints[:]...) {
				if n := rig.ChecksumErrors(t, h); n > 0 {
					t.Errorf("%s has received %d packets with wrong checksums", h.Name, n)
				}
			}
		})
	}
}
