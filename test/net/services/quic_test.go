package services_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/quictest"
)

// quicKey is a key of AES-128.
const quicKey = "8f95f09245765f80256934e50c66207f"

// quicService is a QUIC service, with the format of its servers' connection IDs.
type quicService struct {
	port   int
	length int // of server IDs
	ids    quictest.IDs
}

// quicServices returns a service for each format of connection IDs: in plaintext, encrypted as one
// block, by three passes over an odd number of bytes, and by four passes.
func quicServices() []quicService {
	key := quictest.Hex(quicKey)
	return []quicService{
		{port: 4431, length: 1, ids: quictest.IDs{Nonce: 7}},
		{port: 4432, length: 4, ids: quictest.IDs{Config: 1, Nonce: 12, Key: key}},
		{port: 4433, length: 3, ids: quictest.IDs{Config: 2, Nonce: 8, Key: key}},
		{port: 4434, length: 9, ids: quictest.IDs{Config: 6, Nonce: 5, Key: key}},
	}
}

// server returns the server ID of an endpoint.
func (s *quicService) server(endpoint int) []byte {
	id := make([]byte, s.length)
	id[s.length-1] = byte(0xa0 + endpoint)
	return id
}

// configuration returns the service's --quic.
func (s *quicService) configuration() string {
	if s.ids.Key == nil {
		return fmt.Sprint(s.ids.Config)
	}
	return fmt.Sprintf("%d:%d:%s", s.ids.Config, s.ids.Nonce, quicKey)
}

// endpoints returns the endpoints of a list with their server IDs.
func (s *quicService) endpoints(list string) string {
	all := strings.Split(list, ",")
	for i := range all {
		all[i] += "#" + hex.EncodeToString(s.server(i))
	}
	return strings.Join(all, ",")
}

// serve starts the servers of the service.
func (s *quicService) serve(t *testing.T, r *rig.Rig) {
	t.Helper()
	for i, h := range r.Endpoints {
		p, err := h.ListenPacket("udp", fmt.Sprintf(":%d", s.port))
		if err != nil {
			t.Fatal(err)
		}
		ids := s.ids
		ids.Server = s.server(i)
		end, err := quictest.Serve(p, &ids, h.Name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = end() })
	}
}

// wantServer checks that the server with the given name answers.
func wantServer(ctx context.Context, t *testing.T, c *quictest.Client, what, name string) {
	t.Helper()
	if got, err := c.Ask(ctx); got != name || err != nil {
		t.Errorf("%s: %q answers (%v), want %s", what, got, err, name)
	}
}

// TestQUIC checks that connections of real QUIC clients stay with their servers when the clients'
// ports change, by a NAT or by migration, and while their endpoint is drained.
//
// P87 A client of QUIC that changes its address and port keeps its endpoint: 32 times of 32, in
// plaintext and encrypted, IPv4 and IPv6.
func TestQUIC(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, s := range quicServices() {
		s.serve(t, r)
		for _, family := range []struct{ vip, endpoints, any string }{{rig.VIP4, rig.Endpoints4(), "0.0.0.0:0"}, {rig.VIP6, rig.Endpoints6(), "[::]:0"}} {
			r.Loxicmd("create lb %s --udp=%d:%d --select=quic --quic=%s --endpoints=%s", family.vip, s.port, s.port, s.configuration(), s.endpoints(family.endpoints))
			listen := func() (net.PacketConn, error) { return r.Client.ListenPacket("udp", family.any) }
			changePorts(ctx, t, &s, family.vip, listen)
		}
	}
}

// changes is the number of changes of a client's port: quic-go's servers follow two.
const changes = 2

// changePorts changes a client's port as a NAT would, and migrates another client to other ports.
func changePorts(ctx context.Context, t *testing.T, s *quicService, vip string, listen func() (net.PacketConn, error)) {
	t.Helper()
	to := &net.UDPAddr{IP: net.ParseIP(vip), Port: s.port}
	what := fmt.Sprintf("%s, --quic=%s", vip, s.configuration())
	c, name := dialQUIC(ctx, t, listen, to)
	for n := range changes {
		if err := c.Rebind(); err != nil {
			t.Fatal(err)
		}
		wantServer(ctx, t, c, fmt.Sprintf("%s, rebinding %d", what, n), name)
	}
	c, name = dialQUIC(ctx, t, listen, to)
	for n := range changes {
		p, err := listen()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		if err := c.Migrate(ctx, p); err != nil {
			t.Fatalf("%s, migration %d: %v", what, n, err)
		}
		wantServer(ctx, t, c, fmt.Sprintf("%s, migration %d", what, n), name)
	}
}

// dialQUIC returns a connection, and the name of its server.
func dialQUIC(ctx context.Context, t *testing.T, listen func() (net.PacketConn, error), to net.Addr) (*quictest.Client, string) {
	t.Helper()
	c, err := quictest.Dial(ctx, listen, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	name, err := c.Ask(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return c, name
}

// TestQUICDrain checks that a connection keeps its drained server after a change of its port and a
// restart of the daemon, and that new connections use other servers.
func TestQUICDrain(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := quicServices()[2]
	s.serve(t, r)
	r.Loxicmd("create lb %s --udp=%d:%d --select=quic --quic=%s --endpoints=%s", rig.VIP4, s.port, s.port, s.configuration(), s.endpoints(rig.Endpoints4()))
	listen := func() (net.PacketConn, error) { return r.Client.ListenPacket("udp", "0.0.0.0:0") }
	to := &net.UDPAddr{IP: net.ParseIP(rig.VIP4), Port: s.port}
	c, name := dialQUIC(ctx, t, listen, to)
	for i, h := range r.Endpoints {
		if h.Name == name {
			address, _, _ := strings.Cut(strings.Split(rig.Endpoints4(), ",")[i], ":")
			r.Loxicmd("drain ep %s", address)
		}
	}
	if err := c.Rebind(); err != nil {
		t.Fatal(err)
	}
	wantServer(ctx, t, c, "drained", name)
	r.Stop()
	r.Restart()
	if err := c.Rebind(); err != nil {
		t.Fatal(err)
	}
	wantServer(ctx, t, c, "restarted", name)
	for range 5 {
		if _, other := dialQUIC(ctx, t, listen, to); other == name {
			t.Errorf("a new connection goes to %s, which is drained", name)
		}
	}
}
