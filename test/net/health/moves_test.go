package health_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// moveTime is the time within which flows of a failed endpoint must move to another one.
const moveTime = time.Second

// algorithms returns all load-balancing algorithms.
func algorithms() []string { return []string{"rr", "hash", "priority", "persist", "lc", "random"} }

// serveDNS starts dnsmasq on an endpoint. It answers queries for www.example with 192.0.2.N, where
// N is the number of the endpoint.
func serveDNS(t testing.TB, h *netnstest.Host, number int) *netnstest.Process {
	t.Helper()
	p, err := h.Start(netnstest.Command{Args: []string{
		"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--group=root", "--pid-file=", "--no-resolv", "--no-hosts",
		"--port=5053", fmt.Sprintf("--address=/www.example/192.0.2.%d", number),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// resolver is a client that sends all its queries from one socket.
type resolver struct {
	what string
	conn *dns.Conn
}

// ask sends a query once, and returns the number of the endpoint that answers.
func (r *resolver) ask() (int, error) {
	query := new(dns.Msg).SetQuestion("www.example.", dns.TypeA)
	if err := r.conn.SetDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		return 0, err
	}
	if err := r.conn.WriteMsg(query); err != nil {
		return 0, err
	}
	for {
		answer, err := r.conn.ReadMsg()
		if err != nil {
			return 0, err
		}
		if answer.Id != query.Id { // the answer to a query that has timed out
			continue
		}
		for _, record := range answer.Answer {
			if a, ok := record.(*dns.A); ok {
				return int(a.A.To4()[3]), nil
			}
		}
		return 0, fmt.Errorf("no address: %v", answer)
	}
}

// wantOtherThan waits until an endpoint other than the former one answers, and returns its number.
func (r *resolver) wantOtherThan(t testing.TB, former int) (who int) {
	t.Helper()
	labtest.Promised(t, moveTime, func(context.Context) (err error) {
		if who, err = r.ask(); err == nil && who == former {
			err = fmt.Errorf("endpoint %d answers", former)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", r.what, err)
		}
		return err
	})
	return who
}

// TestDNSMoves checks, for each algorithm and mode, that the next query of a resolver reaches
// another server after its server was killed or removed from the service. The resolver has one
// source port. Flows of other servers stay, and no flow moves back.
//
// P39
func TestDNSMoves(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	servers := make([]*netnstest.Process, len(r.Endpoints))
	for i, h := range r.Endpoints {
		servers[i] = serveDNS(t, h, i+1)
	}
	var all []*resolver
	create := func(endpoints string) {
		port := 5300
		for _, mode := range []string{"default", "fullnat"} {
			for _, algorithm := range algorithms() {
				port++
				r.Loxicmd("create lb %s --udp=%d:5053 --mode=%s --select=%s --endpoints=%s --monitor --probetype=dns --probereq=www.example --probe-interval=100ms",
					rig.VIP4, port, mode, algorithm, endpoints)
				all = append(all, &resolver{fmt.Sprintf("mode %s, %s", mode, algorithm), &dns.Conn{Conn: rig.DialUDP(t, r, rig.Join(rig.VIP4, port))}})
			}
		}
	}
	create(rig.Endpoints4())
	resolvers := all
	addresses := strings.Split(rig.Endpoints4(), ",")
	awaitState := func(number int, state string) {
		t.Helper()
		address, _, _ := strings.Cut(addresses[number-1], ":")
		r.EventuallyShows("get ep", address+" ", " "+state+" ")
	}
	for n := range servers {
		awaitState(n+1, "up")
	}
	at := make([]int, len(resolvers))
	for i, each := range resolvers {
		at[i] = each.wantOtherThan(t, 0)
	}
	moved := 0
	for n := range servers {
		servers[n].Kill()
		awaitState(n+1, "down")
		for i, each := range resolvers {
			now := each.wantOtherThan(t, n+1)
			if at[i] != n+1 && now != at[i] {
				t.Errorf("%s: after the end of server %d, a resolver moved from server %d to %d", each.what, n+1, at[i], now)
			}
			if now != at[i] {
				moved++
			}
			at[i] = now
		}
		servers[n] = serveDNS(t, r.Endpoints[n], n+1)
		awaitState(n+1, "up")
		for i, each := range resolvers {
			if now := each.wantOtherThan(t, 0); now != at[i] {
				t.Errorf("%s: after the restart of server %d, a resolver moved from server %d to %d", each.what, n+1, at[i], now)
			}
		}
	}
	create(strings.Join(addresses[1:], ","))
	for i, each := range resolvers {
		if now := each.wantOtherThan(t, 1); at[i] != 1 && now != at[i] {
			t.Errorf("%s: after the removal of server 1, a resolver moved from server %d to %d", each.what, at[i], now)
		}
	}
	if moved < len(resolvers) {
		t.Errorf("each server was killed once, but %d resolvers moved only %d times", len(resolvers), moved)
	}
	t.Logf("%d resolvers moved %d times", len(resolvers), moved)

	// dig uses a fixed source port, as some resolvers do.
	if out := labtest.Run(t, r.Client, "dig", "+short", "+tries=1", "-b", "100.100.100.1#5999", "-p", "5301", "@"+rig.VIP4, "www.example"); !strings.HasPrefix(out, "192.0.2.") {
		t.Errorf("dig prints %q", out)
	}
}

// startQUICServers starts a server on every endpoint, at port 4433, that answers each stream with
// its name. A server answers packets of another server's connections by a stateless reset, since
// all of them share a key (RFC 9000 section 10.3).
func startQUICServers(r *rig.Rig) {
	r.T.Helper()
	https := httptest.NewTLSServer(nil) // for its certificate
	https.Close()
	config := &tls.Config{Certificates: https.TLS.Certificates, NextProtos: []string{"name"}, MinVersion: tls.VersionTLS13}
	for _, h := range r.Endpoints {
		p, err := h.ListenPacket("udp", ":4433")
		if err != nil {
			r.T.Fatal(err)
		}
		transport := &quic.Transport{Conn: p, StatelessResetKey: &quic.StatelessResetKey{1}}
		listener, err := transport.Listen(config, nil)
		if err != nil {
			r.T.Fatal(err)
		}
		r.Lab.Cleanup(func() { _ = errors.Join(transport.Close(), p.Close()) })
		go serveQUIC(listener, h.Name)
	}
}

func serveQUIC(l *quic.Listener, name string) {
	for {
		c, err := l.Accept(context.Background())
		if err != nil {
			return
		}
		go func() {
			for {
				s, err := c.AcceptStream(context.Background())
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, s)
				_, _ = io.WriteString(s, name)
				_ = s.Close()
			}
		}()
	}
}

// quicClient has one socket, and at most one connection at a time.
type quicClient struct {
	transport *quic.Transport
	to        net.Addr
	*quic.Conn
}

func (c *quicClient) dial(ctx context.Context) (err error) {
	c.Conn, err = c.transport.Dial(ctx, c.to, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"name"}}, nil) //nolint:gosec // of a test
	return err
}

// ask returns the name of the server.
func (c *quicClient) ask(ctx context.Context) (string, error) {
	s, err := c.OpenStreamSync(ctx)
	if err != nil {
		return "", err
	}
	deadline, _ := ctx.Deadline()
	if err := s.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := s.Write(bytes.Repeat([]byte("who are you?"), 20)); err != nil { // a stateless reset is shorter than the packet that it answers
		return "", err
	}
	if err := s.Close(); err != nil {
		return "", err
	}
	name, err := io.ReadAll(s)
	return string(name), err
}

// unknownFlows are UDP flows without a QUIC connection. Each server answers their packets by a
// stateless reset.
type unknownFlows []net.Conn

// newUnknownFlows opens several flows to each endpoint.
func newUnknownFlows(t *testing.T, r *rig.Rig, to string) (flows unknownFlows) {
	t.Helper()
	for range 6 {
		c := rig.DialUDP(t, r, to)
		if err := sendUnknown(c); err != nil {
			t.Fatal(err)
		}
		flows = append(flows, c)
	}
	return flows
}

// sendUnknown sends a packet with a short header of QUIC, and waits for an answer.
func sendUnknown(c net.Conn) error {
	_, err := rig.Datagram(c, "\x40"+strings.Repeat("unknown", 10))
	return err
}

// awaitMoved waits until each flow gets an answer: the data path has then moved the flows of the
// unreachable endpoint. Status commands show this endpoint as down slightly earlier.
func (flows unknownFlows) awaitMoved(t *testing.T) {
	t.Helper()
	for _, c := range flows {
		labtest.Eventually(t, rig.Patience, func(context.Context) error { return sendUnknown(c) })
	}
}

// TestQUICMoves disconnects an endpoint while a QUIC client uses it. The client's next packet
// reaches another server, which ends the connection by a stateless reset. So the client can dial
// again from the same port without waiting for a timeout.
//
// P39
func TestQUICMoves(t *testing.T) {
	t.Parallel()
	w := newWireRig(t, rig.Options{})
	startQUICServers(w.Rig)
	for i, mode := range []string{"default", "fullnat"} {
		w.Loxicmd("create lb %s --udp=%d:4433 --mode=%s --endpoints=%s --monitor --probetype=ping --probe-interval=100ms", rig.VIP4, 443+i, mode, rig.Endpoints4())
	}
	for i := range 2 {
		p, err := w.Client.ListenPacket("udp4", "100.100.100.1:0")
		if err != nil {
			t.Fatal(err)
		}
		client := &quicClient{transport: &quic.Transport{Conn: p}, to: &net.UDPAddr{IP: net.ParseIP(rig.VIP4), Port: 443 + i}}
		w.Lab.Cleanup(func() { _ = errors.Join(client.transport.Close(), p.Close()) })
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := client.dial(ctx); err != nil {
			t.Fatal(err)
		}
		before, err := client.ask(ctx)
		if err != nil {
			t.Fatal(err)
		}
		others := newUnknownFlows(t, w.Rig, rig.Join(rig.VIP4, 443+i))
		number := int(before[2] - '0')
		address := netnstest.StandardNetworks()[number].V4.Addr().String()
		w.EventuallyShows("get ep", address+" ", " up ")
		if err := w.wires[before].SetCut(true); err != nil {
			t.Fatal(err)
		}
		w.EventuallyShows("get ep", address+" ", " down ")
		others.awaitMoved(t)
		sent := func() float64 {
			return w.Metric("endpoint_packets_total", fmt.Sprintf("service=%s:%d/udp", rig.VIP4, 443+i), "endpoint="+rig.Join(address, 4433), "dir=in")
		}
		sentBefore, start := sent(), time.Now()
		var reset *quic.StatelessResetError
		if name, err := client.ask(ctx); !errors.As(err, &reset) {
			t.Errorf("after %s was cut off: %q, %v; want a stateless reset", before, name, err)
		}
		if err := client.dial(ctx); err != nil {
			t.Fatal(err)
		}
		after, err := client.ask(ctx)
		if err != nil || after == before {
			t.Errorf("%s is unreachable, but %q answers: %v", before, after, err)
		}
		if n := sent() - sentBefore; n != 0 {
			t.Errorf("%v packets went to %s after the flows had moved", n, before)
		}
		t.Logf("from %s to %s in %v", before, after, time.Since(start).Round(time.Millisecond))
		if err := w.wires[before].SetCut(false); err != nil {
			t.Fatal(err)
		}
		if again, err := client.ask(ctx); err != nil || again != after {
			t.Errorf("%s is reachable again, and %q answers, want %q: %v", before, again, after, err)
		}
	}
}
