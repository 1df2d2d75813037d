package speaker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb/bgp"
	"loxilb/test/await"
	"loxilb/test/netnstest/labtest"
	"loxilb/test/netnstest/routers"
)

// TestEndConnections checks that connections of one neighbor to one port end, and no others.
func TestEndConnections(t *testing.T) {
	t.Parallel()
	ends := map[string]net.Conn{}
	var port uint16
	for _, name := range []string{"ours", "other port"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // of a test
		if name == "ours" {
			port = netip.MustParseAddrPort(l.Addr().String()).Port()
		}
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close() //nolint:errcheck // of a test
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close() //nolint:errcheck // it must not be closed before, as garbage
		ends[name] = client
	}
	if endConnections(port, netip.MustParseAddr("127.0.0.2")) {
		t.Error("a connection of another neighbor was ended")
	}
	if !endConnections(port, netip.MustParseAddr("127.0.0.1")) {
		t.Error("no connection was ended")
	}
	if _, err := ends["ours"].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is open: %v", err)
	}
	if err := ends["other port"].SetReadDeadline(time.Now().Add(50 * ms)); err != nil {
		t.Fatal(err)
	}
	if _, err := ends["other port"].Read(make([]byte, 1)); errors.Is(err, io.EOF) {
		t.Error("a connection to another port was ended")
	}
}

// TestCollisions checks that sessions come back although both sides connect as soon as a link
// comes back. FRR's own timer is too long to help.
func TestCollisions(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f, err := routers.StartFRR(l.lab, l.router, fmt.Sprintf(`router bgp %d
 bgp router-id 10.0.0.2
 no bgp ebgp-requires-policy
 neighbor 10.0.0.1 remote-as %d
`, routerASN, uint32(nodeASN)))
	if err != nil {
		t.Fatal(err)
	}
	c := startChild(t, l.node)
	c.call("SetRoutes", []bgp.Route{route(vip)})
	c.call("SetNeighbor", neighbor("10.0.0.2"))
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	for range 4 * rounds {
		awaitPrefixes(t, f, vip)
		labtest.Run(t, l.node, "ip", "link", "set", "eth0", "down")
		timeUntil(t, f, time.Now(), "no route", gone)
		// The node connects 1.5 to 2 s after a pause of 1 s.
		await.Steady(t, 1500*ms, func() error { return nil })
		labtest.Run(t, l.node, "ip", "link", "set", "eth0", "up")
		if back := timeUntil(t, f, time.Now(), "the route", has(vip)); back > 10*time.Second {
			t.Errorf("the route was back after %v", back)
		}
	}
	t.Logf("%d collisions", strings.Count(c.process.Output(), "have collided"))
}
