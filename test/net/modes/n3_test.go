package modes_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// n3Tunnels is the number of tunnels of a base station.
const n3Tunnels = 40

// TestN3 sends packets of many tunnels from two base stations, each from one port. All packets of a
// tunnel reach the same user plane function, from both stations, also after a restart, and after
// echo requests from the same port have opened a connection.
//
// P96 With --select=n3, all packets of a GTP-U tunnel reach one endpoint, whichever base station
// sends them, and echo requests are answered
func TestN3(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, vip, second, any, endpoints, mode, xdp string }{
		{"default", rig.VIP4, "20.20.20.2", "0.0.0.0", "31.31.31.1:1,32.32.32.1:1,17.17.17.1:1", "default", "off"},
		{"fullnat with XDP", rig.VIP4, "20.20.20.2", "0.0.0.0", "31.31.31.1:1,32.32.32.1:1,17.17.17.1:1", "fullnat", "native"},
		{"IPv6", rig.VIP6, "2001:db8:20::2", "::", rig.Endpoints6(), "onearm", "off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Options{Args: []string{"--xdp=" + c.xdp}, Before: prepareForXDP})
			if c.xdp != "off" {
				wantXDPForwarding(t, r)
			}
			functions := make([]*n3Function, len(r.Endpoints))
			for i, h := range r.Endpoints {
				functions[i] = serveN3(t, h)
			}
			// A probe without an answer on a busy machine would move new tunnels, as it should.
			r.Loxicmd("create lb %s --secips=%s --udp=2152:2152 --select=n3 --mode=%s --endpoints=%s --probetype=none", c.vip, c.second, c.mode, c.endpoints)
			to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.vip), 2152))
			second := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.second), 2152))
			var stations []net.PacketConn
			for _, port := range []int{2152, 40000} {
				p, err := r.Client.ListenPacket("udp", net.JoinHostPort(c.any, fmt.Sprint(port)))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = p.Close() })
				stations = append(stations, p)
			}
			at := map[uint32]int{}
			round := func(when string) {
				t.Helper()
				for i, p := range stations {
					n3Echo(t, p, to)
					for teid := range uint32(n3Tunnels) {
						for _, vip := range []net.Addr{to, second} {
							where := n3Send(t, p, vip, teid, functions)
							if before, known := at[teid]; known && before != where {
								t.Errorf("%s, station %d, VIP %v: tunnel %d is at function %d, and was at %d", when, i, vip, teid, where, before)
							}
							at[teid] = where
						}
					}
				}
			}
			round("at first")
			round("again")
			used := map[int]int{}
			for _, where := range at {
				used[where]++
			}
			if len(used) != len(functions) {
				t.Errorf("tunnels are at %v", used)
			}
			for teid := uint32(1); teid < 9; teid++ {
				wantTunnelExplained(t, r, c.vip, teid, strings.Split(c.endpoints, ",")[at[teid]])
			}
			out, err := r.Command("explain", "--from", c.vip, "--to", rig.Join(c.vip, 53), "--teid", "9")
			if err == nil || !strings.Contains(out, "is not a service with --select=n3") {
				t.Errorf("explain of another port: %v, %s", err, out)
			}
			r.Kill()
			round("without the daemon")
			r.Restart()
			round("after a restart")
			r.EventuallyMetric(1, "gtp_packets_total", "outcome=balanced")
			r.Loxicmd("delete lb %s --udp=2152", c.vip)
			if _, err := r.LB.Run("sh", "-c", "! ls "+netnstest.PinPath(r.Dir())+"/gtp/* 2>/dev/null"); err != nil {
				t.Error("the programs are attached without services")
			}
		})
	}
}

// wantTunnelExplained checks that explain prints the endpoint of a tunnel, for another base
// station.
func wantTunnelExplained(t *testing.T, r *rig.Rig, vip string, teid uint32, endpoint string) {
	t.Helper()
	station := "100.100.100.77"
	if strings.Contains(vip, ":") {
		station = "2001:db8:100::77"
	}
	var got v1.Explanation
	out := r.Loxicmd("explain --from %s --to %s --teid %d -o json", station, vip, teid)
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSuffix(endpoint, ":1") + ":2152"; got.Endpoint != want || got.Verdict != "forwarded" {
		t.Errorf("tunnel %d is explained as %s to %s, want %s:\n%s", teid, got.Verdict, got.Endpoint, want, out)
	}
}

// prepareForXDP makes hosts send complete checksums, and lets links accept frames from XDP.
// Otherwise, tc would handle all packets.
func prepareForXDP(t testing.TB, s *netnstest.Standard) {
	t.Helper()
	rig.DisableOffloads(t, s)
	for _, h := range append([]*netnstest.Host{s.Client}, s.Endpoints[:]...) {
		if _, err := h.Run("ethtool", "-K", "eth0", "gro", "on"); err != nil {
			t.Fatal(err)
		}
	}
}

// wantXDPForwarding checks that XDP forwards datagrams of another service, so it also gets those of
// tunnels.
func wantXDPForwarding(t *testing.T, r *rig.Rig) {
	t.Helper()
	r.ServeEchoes()
	c := rig.DialUDP(t, r, rig.Join(rig.VIP4, 53))
	for range 20 {
		if _, err := rig.Datagram(c, "hello"); err != nil {
			t.Fatal(err)
		}
	}
	r.EventuallyMetric(20, "xdp_forwarded_packets_total")
}

// n3Function is a user plane function that records the TEIDs of users' packets, and answers echo
// requests.
type n3Function struct{ teids chan uint32 }

func serveN3(t *testing.T, h *netnstest.Host) *n3Function {
	t.Helper()
	p, err := h.ListenPacket("udp", ":2152")
	if err != nil {
		t.Fatal(err)
	}
	f := &n3Function{make(chan uint32, 1000)}
	done := make(chan struct{})
	t.Cleanup(func() { _ = p.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for {
			n, from, err := p.ReadFrom(buf)
			switch {
			case err != nil:
				return
			case n >= 12 && buf[1] == 1: // an echo request
				buf[1] = 2
				_, _ = p.WriteTo(buf[:n], from)
			case n >= 8 && buf[1] == 255:
				f.teids <- uint32(buf[6])<<8 | uint32(buf[7])
			}
		}
	}()
	return f
}

// n3Echo fails the test unless an echo request is answered.
func n3Echo(t *testing.T, p net.PacketConn, to net.Addr) {
	t.Helper()
	request := []byte{0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0}
	if _, err := p.WriteTo(request, to); err != nil {
		t.Fatal(err)
	}
	_ = p.SetReadDeadline(time.Now().Add(rig.Patience))
	buf := make([]byte, 100)
	n, from, err := p.ReadFrom(buf)
	if err != nil || n != len(request) || buf[1] != 2 || from.String() != to.String() {
		t.Fatalf("answer to an echo request: %x of %v, %v", buf[:n], from, err)
	}
}

// n3Send sends a packet in a tunnel, and returns the number of the function that receives it.
func n3Send(t *testing.T, p net.PacketConn, to net.Addr, teid uint32, functions []*n3Function) int {
	t.Helper()
	if _, err := p.WriteTo(gtpPacket(teid, udpPacket("88.88.88.88", "9.9.9.9")), to); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(rig.Patience)
	select {
	case got := <-functions[0].teids:
		return n3Check(t, got, teid, 0)
	case got := <-functions[1].teids:
		return n3Check(t, got, teid, 1)
	case got := <-functions[2].teids:
		return n3Check(t, got, teid, 2)
	case <-deadline:
		t.Fatalf("a packet of tunnel %d is lost", teid)
	}
	return 0
}

func n3Check(t *testing.T, got, want uint32, at int) int {
	t.Helper()
	if got != want {
		t.Fatalf("function %d receives a packet of tunnel %d, not %d", at, got, want)
	}
	return at
}
