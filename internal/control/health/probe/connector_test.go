package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb"
	"loxilb/test/await"
	"loxilb/test/netnstest/labtest"
)

func connector(t *testing.T) *Connector {
	t.Helper()
	c, err := NewConnector()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// outcome is the result of an attempt.
type outcome struct {
	Answer
	err error
}

// connect starts an attempt and collects until it has ended.
func connect(t *testing.T, c *Connector, q Question) (o outcome) {
	t.Helper()
	if q.Probe.Timeout == 0 {
		q.Probe.Timeout = 10 * time.Second
	}
	ended := false
	_, err := c.Start(q, func(a Answer, err error) { o, ended = outcome{a, err}, true })
	if err != nil {
		return outcome{err: err}
	}
	labtest.Eventually(t, 20*time.Second, func(context.Context) error {
		if c.Collect(); !ended {
			return errors.New("it has not ended")
		}
		return nil
	})
	return o
}

// TestConnector checks a port that accepts, one that refuses, and one that does not answer.
func TestConnector(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		accepted := make(chan net.Conn, 100)
		open := serve(t, loopback, func(c net.Conn) { accepted <- c })
		c := connector(t)
		for range 50 {
			if o := connect(t, c, Question{To: open}); o.err != nil || o.What != "accepts connections" || o.Delay <= 0 || o.Delay > 5*time.Second {
				t.Fatalf(`got %+v, want o.err == nil, o.What == "accepts connections", o.Delay > 0, o.Delay <= 5*time.Second`,
					o)
			}
		}
		if n := len(accepted); n > 25 { // a few if this machine is too busy to collect for 200 ms
			t.Errorf("the endpoint's program has seen %d of 50 connections", n)
		}
		if o := connect(t, c, Question{To: closedPort(loopback)}); o.err == nil || o.err.Error() != "connection refused" {
			t.Errorf(`got %+v, want o.err != nil, o.err.Error() == "connection refused"`, o)
		}
		if o := connect(t, c, Question{To: unansweringPort(t, loopback), Probe: lb.Probe{Timeout: 200 * time.Millisecond}}); o.err == nil || o.err.Error() != "no answer within 200ms" {
			t.Errorf(`got %+v, want o.err != nil, o.err.Error() == "no answer within 200ms"`, o)
		}
		if c.Running() != 0 {
			t.Errorf("%d attempts are left", c.Running())
		}
	})
}

// TestConnectorCancel checks that a canceled attempt has no outcome.
func TestConnectorCancel(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		c := connector(t)
		q := Question{To: unansweringPort(t, loopback), Probe: lb.Probe{Timeout: 100 * time.Millisecond}}
		a, err := c.Start(q, func(Answer, error) { t.Error("a cancelled attempt has an outcome") })
		if err != nil {
			t.Fatal(err)
		}
		if !c.Cancel(a) || c.Cancel(a) || c.Running() != 0 {
			t.Error("the connection is still open")
		}
		await.Steady(t, 2*q.Probe.Timeout, func() error { c.Collect(); return nil })
	})
}

// TestSource checks that probes leave from the given source address, and that an address that this
// machine lacks is not counted as a failure of the endpoint.
func TestSource(t *testing.T) {
	t.Parallel()
	from := make(chan string, 1)
	q := Question{From: netip.MustParseAddr("127.0.0.77"), Probe: lb.Probe{Type: lb.ProbeTCP, Response: "x"}}
	q.To = serve(t, netip.MustParseAddr("127.0.0.1"), func(c net.Conn) {
		from <- c.RemoteAddr().String()
		c.Write([]byte("x"))
	})
	wantAnswer(t, q, "answered")
	if got := <-from; !strings.HasPrefix(got, "127.0.0.77:") {
		t.Errorf("the probe came from %s", got)
	}
	c := connector(t)
	if o := connect(t, c, q); o.err != nil {
		t.Error(o.err)
	}
	const nobody = "cannot be probed: cannot assign requested address"
	q.From = netip.MustParseAddr("192.0.2.1")
	if o := connect(t, c, q); !errors.Is(o.err, ErrNotSent) || o.err.Error() != nobody {
		t.Errorf("a probe from a foreign address fails with %v, want %s", o.err, nobody)
	}
	for _, kind := range []lb.ProbeType{lb.ProbeTCP, lb.ProbeUDP, lb.ProbeHTTP, lb.ProbeHTTPS, lb.ProbeGRPC, lb.ProbeDNS, lb.ProbePing} {
		q.Probe.Type = kind
		wantError(t, q, nobody)
	}
}

// TestNoRoute checks that an endpoint without a route is down.
func TestNoRoute(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"192.0.2.1:80", "[2001:db8::1]:80"} {
		q := Question{To: netip.MustParseAddrPort(to), Probe: lb.Probe{Request: "x", Response: "x"}}
		if o := connect(t, connector(t), q); o.err == nil || o.err.Error() != "network is unreachable" {
			t.Errorf("connector to %s: %v", to, o.err)
		}
		for _, kind := range []lb.ProbeType{lb.ProbePing, lb.ProbeTCP, lb.ProbeUDP, lb.ProbeHTTP, lb.ProbeHTTPS, lb.ProbeGRPC, lb.ProbeDNS} {
			q.Probe.Type = kind
			wantError(t, q, "network is unreachable")
		}
	}
}

// TestNoTimeWait checks that no probe leaves a port in TIME_WAIT at either side.
func TestNoTimeWait(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		q := Question{Probe: lb.Probe{Type: lb.ProbeTCP, Request: "a", Response: "b"}}
		q.To = serve(t, loopback, func(c net.Conn) {
			c.Read(make([]byte, 100))
			c.Write([]byte("b"))
			hold(c)
		})
		c := connector(t)
		for range 20 {
			wantAnswer(t, q, "answered")
			connect(t, c, q)
		}
		for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			text, err := os.ReadFile(table)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				f := strings.Fields(line)
				if f[3] == "06" && (strings.HasSuffix(f[1], fmt.Sprintf(":%04X", q.To.Port())) || strings.HasSuffix(f[2], fmt.Sprintf(":%04X", q.To.Port()))) {
					t.Errorf("in TIME_WAIT: %s", line)
				}
			}
		}
	})
}

// TestConnectorAgain checks that reused sockets, many at a time, report each connection's own
// result.
func TestConnectorAgain(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		open := serve(t, loopback, hold)
		c := connector(t)
		q := Question{To: open, Probe: lb.Probe{Timeout: 5 * time.Second}}
		for round := range 5 {
			const attempts = 1000
			ended := 0
			for range attempts {
				if _, err := c.Start(q, func(_ Answer, err error) {
					if ended++; err != nil {
						t.Errorf("round %d: %v", round, err)
					}
				}); err != nil {
					t.Fatal(err)
				}
			}
			labtest.Eventually(t, 20*time.Second, func(context.Context) error {
				if c.Collect(); ended < attempts {
					return fmt.Errorf("%d of %d attempts have ended", ended, attempts)
				}
				return nil
			})
		}
	})
}

// TestDropIdle checks that kept sockets can be dropped one by one, and that probes work without
// them.
func TestDropIdle(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		open := serve(t, loopback, func(c net.Conn) { c.Close() })
		c := connector(t)
		for range 2 {
			if o := connect(t, c, Question{To: open, Probe: lb.Probe{Type: lb.ProbeTCP}}); o.err != nil {
				t.Fatal(o.err)
			}
			if c.Idle() != 1 {
				t.Errorf("%d sockets are kept, want 1", c.Idle())
			}
			for range 2 {
				c.DropIdle()
			}
			if c.Idle() != 0 {
				t.Errorf("%d sockets are kept, want none", c.Idle())
			}
		}
	})
}
