package modes_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"loxilb/internal/pkt"
	"loxilb/test/net/rig"
)

// TestTunnels checks tunnels of IPv4 and IPv6 in IPv4 and IPv6, with and without UDP, for TCP and
// UDP. The endpoint sees the client's address, the link carries an outer header, and megabytes pass
// although the encapsulated packets exceed the MTU.
func TestTunnels(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	r := rig.New(t, rig.Options{Before: rig.ConfigureDirectReturn})
	rig.ServeSourcesAt(r, rig.VIP4, rig.VIP6)
	for _, h := range r.Endpoints {
		if err := h.ServeTCP(":7001", rig.ServeTransfer(size)); err != nil {
			t.Fatal(err)
		}
	}
	rig.Decapsulate(r, "198.18.0.0/15,100::/64,31.31.31.254,2001:db8:31::fe")
	for _, vip := range []struct{ addr, client string }{{rig.VIP4, "100.100.100.1"}, {rig.VIP6, "2001:db8:100::1"}} {
		for _, endpoint := range []string{"31.31.31.1", "2001:db8:31::1"} {
			for _, tunnel := range []string{"ipip", "gue"} {
				t.Logf("%s over %s to %s", vip.addr, tunnel, endpoint)
				tunnelled(r, vip.addr, vip.client, endpoint, tunnel)
				if err := rig.Transfer(r.Dial(rig.Join(vip.addr, 7001)), size); err != nil {
					t.Errorf("%s over %s to %s: %v", vip.addr, tunnel, endpoint, err)
				}
			}
		}
	}
}

// tunnelled creates services and checks that their packets have outer headers.
func tunnelled(r *rig.Rig, vip, client, endpoint, tunnel string) {
	r.T.Helper()
	wire := openCaptureSocket(r.T, r.Endpoints[0], "eth0")
	r.Loxicmd("create lb %s --tcp=7000:7000,7001:7001 --udp=7000:7000 --endpoints=%s --mode=dsr --tunnel=%s", vip, rig.Bracket(endpoint)+":1", tunnel)
	for _, network := range []string{"tcp", "udp"} {
		c := r.WantSource(r.Client, network, rig.Join(vip, 7000), client)
		if c == nil {
			continue
		}
		awaitFrame(r.T, wire, fmt.Sprintf("%s of %s in %s", network, vip, tunnel), func(frame []byte, _ *pkt.Packet) bool {
			return outer(frame, c.LocalAddr().String(), endpoint, tunnel)
		})
		if network == "udp" && !strings.Contains(r.Loxicmd("get ct --proto=udp --vip=%s", vip), "ddsr-"+rig.Join(endpoint, 7000)) {
			r.T.Errorf("get ct does not tell of %s", endpoint)
		}
	}
}

// outer reports whether a frame is a packet of the client in the expected outer header.
func outer(frame []byte, client, endpoint, tunnel string) bool {
	size, proto, version := 34, frame[23], frame[14]>>4
	if strings.Contains(endpoint, ":") {
		if size, proto = 54, frame[20]; version != 6 || !bytes.Equal(frame[38:54], rig.Prefix(endpoint+"/128").Addr().AsSlice()) {
			return false
		}
	} else if version != 4 || !bytes.Equal(frame[30:34], rig.Prefix(endpoint+"/32").Addr().AsSlice()) {
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
