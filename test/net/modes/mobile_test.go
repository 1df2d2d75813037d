package modes_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// A mobile user behind a base station on the client's host, and the user plane function on the last
// endpoint.
const (
	userAddr   = "88.88.88.88"
	accessAddr = "100.100.100.1"
	coreAddr   = "17.17.17.1"
	accessTEID = 7
	coreTEID   = 9
	userQFI    = 16
)

// TestSessions checks connections of a mobile user to a VIP over GTP-U. Only packets to addresses
// with a classifier are taken out of their tunnel. Answers have the base station's TEID and the QoS
// flow. Connections continue while no daemon runs.
//
// P88 Only packets of mobile users to classified addresses are taken out of their GTP-U tunnel, and
// answers return through it, also while no daemon runs
func TestSessions(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	r := rig.New(t, rig.Options{Options: netnstest.Options{Forwarding: true}})
	r.ServeNames()
	for _, h := range r.Endpoints[:2] {
		if err := h.ServeTCP(":7001", rig.ServeTransfer(size)); err != nil {
			t.Fatal(err)
		}
	}
	station := newStation(t, r)
	function := listenGTP(t, r.Endpoints[2], coreAddr)
	r.Loxicmd("create lb %s --tcp=2020:5001,7001:7001 --endpoints=31.31.31.1:1,32.32.32.1:1", rig.VIP4)
	r.Loxicmd("create session user1 %s --accessNetworkTunnel=%d:%s --coreNetworkTunnel=%d:%s", userAddr, accessTEID, accessAddr, coreTEID, coreAddr)

	t.Log("without a classifier, all packets stay in the tunnel")
	if _, err := r.Ask(rig.Join(rig.VIP4, 2020)); err == nil {
		t.Error("a VIP without a classifier answers")
	}
	if !function.hasReceived(rig.VIP4) {
		t.Error("the user plane function has not received the packet")
	}

	r.Loxicmd("create sessionulcl user1 --ulclArgs=%d:%s", userQFI, rig.VIP4)
	for range 2 {
		who, err := r.Ask(rig.Join(rig.VIP4, 2020))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(who, "sees "+userAddr) {
			t.Errorf("the endpoint sees the source %q, want the user", who)
		}
	}
	if wrong := station.faults(); wrong != "" {
		t.Errorf("got %v, want nothing", wrong)
	}

	t.Log("large packets are segmented before they get the header of the tunnel")
	if err := rig.Transfer(r.Dial(rig.Join(rig.VIP4, 7001)), size); err != nil {
		t.Error(err)
	}

	t.Log("other destinations, and other users, stay in the tunnel")
	station.send(t, gtpPacket(coreTEID, udpPacket(userAddr, "9.9.9.9")))
	station.send(t, gtpPacket(coreTEID, udpPacket("88.88.88.89", rig.VIP4)))
	function.wantPackets(t, "9.9.9.9", rig.VIP4)

	t.Log("packets of wrong users, and packets to users from other addresses, are reported")
	sendTo(t, r.Endpoints[2], userAddr)
	r.EventuallyMetric(1, "gtp_packets_total", "outcome=forged")
	r.EventuallyMetric(1, "gtp_packets_total", "outcome=unclassified")
	doctor, _ := r.Daemon.Command("doctor") // exits with 1 if it reports a problem
	for _, finding := range []string{"1 packets in GTP-U tunnels have another source", "packets to mobile users were dropped"} {
		if !strings.Contains(doctor, finding) {
			t.Errorf("doctor does not report %q:\n%s", finding, doctor)
		}
	}

	t.Log("a connection continues while the daemon is killed and started again")
	c := r.Dial(rig.Join(rig.VIP4, 7001))
	r.Kill()
	r.Restart()
	if err := rig.Transfer(c, size); err != nil {
		t.Error(err)
	}
	if list := r.Loxicmd("get sessionulcl"); !strings.Contains(list, "user1") || !strings.Contains(list, "16") {
		t.Errorf("get sessionulcl: %s", list)
	}

	r.Loxicmd("delete sessionulcl user1 --ulclArgs=%s", rig.VIP4)
	r.Loxicmd("delete session user1")
	if _, err := r.LB.Run("ip", "link", "show", "llbgtp0"); err == nil {
		t.Error("the interfaces exist without sessions")
	}
	r.EventuallyMetric(1, "gtp_packets_total", "outcome=sent") // counters do not start at 0 with new programs
}

// TestSessionMTU has a user send to a service, and to a server itself, by a path with a smaller MTU
// than its own. It learns the MTU by an ICMP error of a router, which has no classifier.
func TestSessionMTU(t *testing.T) {
	t.Parallel()
	const size, server = 1 << 20, "31.31.31.1"
	r := rig.New(t, rig.Options{Options: netnstest.Options{Forwarding: true}})
	if err := r.Endpoints[0].ServeTCP(":7001", rig.SumServer); err != nil {
		t.Fatal(err)
	}
	newStation(t, r)
	rig.MustRun(t, r.Client, "ip", "route", "add", server+"/32", "dev", "ue0", "src", userAddr)
	rig.MustRun(t, r.LB, "ip", "link", "set", "ep1", "mtu", "1300")
	r.Loxicmd("create lb %s --tcp=7001:7001 --endpoints=%s:1", rig.VIP4, server)
	r.Loxicmd("create session user1 %s --accessNetworkTunnel=%d:%s --coreNetworkTunnel=%d:%s", userAddr, accessTEID, accessAddr, coreTEID, coreAddr)
	r.Loxicmd("create sessionulcl user1 --ulclArgs=%d:%s,%d:%s", userQFI, rig.VIP4, userQFI, server)
	for _, to := range []string{rig.VIP4, server} {
		if err := rig.SendSummed(r.Dial(rig.Join(to, 7001)), size); err != nil {
			t.Errorf("to %s: %v", to, err)
		}
	}
}

// sendTo sends a datagram from a host.
func sendTo(t *testing.T, from *netnstest.Host, to string) {
	t.Helper()
	c, err := from.ListenPacket("udp4", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // of a test
	if _, err := c.WriteTo([]byte("hello"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(to), 53))); err != nil {
		t.Fatal(err)
	}
}

// station is a base station with a user. It sends the user's packets through a tunnel to the user
// plane function, and packets from its own tunnel to the user.
type station struct {
	user   *os.File // the user's interface
	tunnel net.PacketConn

	mu    sync.Mutex
	wrong string // a fault of a packet to the user
}

func newStation(t *testing.T, r *rig.Rig) *station {
	t.Helper()
	user, err := r.Client.OpenTun("ue0", unix.IFF_TUN|unix.IFF_NO_PI)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"ip link set ue0 mtu 1400 up", "ip address add " + userAddr + "/32 dev ue0", "ip route add " + rig.VIP4 + "/32 dev ue0 src " + userAddr,
	} {
		rig.MustRun(t, r.Client, strings.Fields(line)...)
	}
	s := &station{user: user}
	if s.tunnel, err = r.Client.ListenPacket("udp4", accessAddr+":2152"); err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	t.Cleanup(func() {
		_ = errors.Join(user.Close(), s.tunnel.Close())
		both.Wait()
	})
	both.Go(s.uplink)
	both.Go(s.downlink)
	return s
}

func (s *station) send(t *testing.T, packet []byte) {
	t.Helper()
	if _, err := s.tunnel.WriteTo(packet, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(coreAddr+":2152"))); err != nil {
		t.Error(err)
	}
}

func (s *station) uplink() {
	to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(coreAddr + ":2152"))
	buf := make([]byte, 2048)
	for {
		n, err := s.user.Read(buf)
		if err != nil {
			return
		}
		if buf[0]>>4 == 4 {
			_, _ = s.tunnel.WriteTo(gtpPacket(coreTEID, buf[:n]), to)
		}
	}
}

func (s *station) downlink() {
	buf := make([]byte, 2048)
	for {
		n, _, err := s.tunnel.ReadFrom(buf)
		if err != nil {
			return
		}
		const header = 16
		p := buf[:n]
		// flags, type, TEID, extension header with the QoS flow
		right := n > header && p[0] == 0x34 && p[1] == 255 && int(binary.BigEndian.Uint16(p[2:])) == n-8 &&
			binary.BigEndian.Uint32(p[4:]) == accessTEID && p[11] == 0x85 && p[12] == 1 && p[13] == 0 && p[14] == userQFI && p[15] == 0
		if !right {
			s.mu.Lock()
			s.wrong = "a packet to the user has the header " + netip.AddrFrom16([16]byte(p[:16])).String()
			s.mu.Unlock()
			continue
		}
		_, _ = s.user.Write(p[header:])
	}
}

func (s *station) faults() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrong
}

// gtpPacket puts an IP packet into a tunnel, with the extension header that base stations send.
func gtpPacket(teid uint32, inner []byte) []byte {
	out := []byte{0x34, 255}
	out = binary.BigEndian.AppendUint16(out, uint16(len(inner)+8))
	out = binary.BigEndian.AppendUint32(out, teid)
	out = append(out, 0, 0, 0, 0x85, 1, 0x10, userQFI, 0)
	return append(out, inner...)
}

// udpPacket returns a datagram without data or checksums.
func udpPacket(from, to string) []byte {
	p := make([]byte, 28)
	p[0], p[3], p[8], p[9] = 0x45, 28, 64, 17
	copy(p[12:], netip.MustParseAddr(from).AsSlice())
	copy(p[16:], netip.MustParseAddr(to).AsSlice())
	binary.BigEndian.PutUint16(p[20:], 4000)
	binary.BigEndian.PutUint16(p[22:], 53)
	p[25] = 8
	return p
}

// userPlane is a user plane function that records the destinations of users' packets.
type userPlane struct {
	mu   sync.Mutex
	seen map[string]bool
}

func listenGTP(t *testing.T, h *netnstest.Host, addr string) *userPlane {
	t.Helper()
	c, err := h.ListenPacket("udp4", addr+":2152")
	if err != nil {
		t.Fatal(err)
	}
	f := &userPlane{seen: map[string]bool{}}
	done := make(chan struct{})
	t.Cleanup(func() { _ = c.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for {
			n, _, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if n >= 36 {
				f.mu.Lock()
				f.seen[netip.AddrFrom4([4]byte(buf[32:36])).String()] = true
				f.mu.Unlock()
			}
		}
	}()
	return f
}

// hasReceived reports whether a packet to an address was received since the last call.
func (f *userPlane) hasReceived(addr string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer delete(f.seen, addr)
	return f.seen[addr]
}

// wantPackets waits until packets to all addresses were received.
func (f *userPlane) wantPackets(t *testing.T, addrs ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	for _, addr := range addrs {
		for !f.hasReceived(addr) {
			select {
			case <-ctx.Done():
				t.Fatalf("the user plane function has not received a packet to %s", addr)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}
