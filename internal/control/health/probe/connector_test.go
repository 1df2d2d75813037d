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

// connect starts an attempt, and calls Collect until it has ended.
func connect(t *testing.T, c *Connector, spec Spec) (o outcome) {
	t.Helper()
	if spec.Probe.Timeout == 0 {
		spec.Probe.Timeout = 10 * time.Second
	}
	ended := false
	_, err := c.Start(spec, func(a Answer, err error) { o, ended = outcome{a, err}, true })
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
			if o := connect(t, c, Spec{To: open}); o.err != nil || o.What != "accepts connections" || o.Delay <= 0 || o.Delay > 5*time.Second {
				t.Fatalf(`got %+v, want o.err == nil, o.What == "accepts connections", o.Delay > 0, o.Delay <= 5*time.Second`,
					o)
			}
		}
		if n := len(accepted); n > 25 { // a few if this machine is too busy to collect for 200 ms
			t.Errorf("the endpoint's program has seen %d of 50 connections", n)
		}
		if o := connect(t, c, Spec{To: closedPort(loopback)}); o.err == nil || o.err.Error() != "connection refused" {
			t.Errorf(`got %+v, want o.err != nil, o.err.Error() == "connection refused"`, o)
		}
		if o := connect(t, c, Spec{To: unansweringPort(t, loopback), Probe: lb.Probe{Timeout: 200 * time.Millisecond}}); o.err == nil || o.err.Error() != "no answer within 200ms" {
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
		spec := Spec{To: unansweringPort(t, loopback), Probe: lb.Probe{Timeout: 100 * time.Millisecond}}
		a, err := c.Start(spec, func(Answer, error) { t.Error("a cancelled attempt has an outcome") })
		if err != nil {
			t.Fatal(err)
		}
		if !c.Cancel(a) || c.Cancel(a) || c.Running() != 0 {
			t.Error("the connection is still open")
		}
		await.Steady(t, 2*spec.Probe.Timeout, func() error { c.Collect(); return nil })
	})
}

// TestSource checks that probes are sent from the given source address, and that it is not a
// failure of the endpoint if this machine lacks that address.
func TestSource(t *testing.T) {
	t.Parallel()
	from := make(chan string, 1)
	spec := Spec{From: netip.MustParseAddr("127.0.0.77"), Probe: lb.Probe{Type: lb.ProbeTCP, Response: "x"}}
	spec.To = serve(t, netip.MustParseAddr("127.0.0.1"), func(c net.Conn) {
		from <- c.RemoteAddr().String()
		c.Write([]byte("x"))
	})
	wantAnswer(t, spec, "answered")
	if got := <-from; !strings.HasPrefix(got, "127.0.0.77:") {
		t.Errorf("the probe came from %s", got)
	}
	c := connector(t)
	if o := connect(t, c, spec); o.err != nil {
		t.Error(o.err)
	}
	const notAssigned = "cannot be probed: cannot assign requested address"
	spec.From = netip.MustParseAddr("192.0.2.1")
	if o := connect(t, c, spec); !errors.Is(o.err, ErrNotSent) || o.err.Error() != notAssigned {
		t.Errorf("a probe from a foreign address fails with %v, want %s", o.err, notAssigned)
	}
	for _, kind := range []lb.ProbeType{lb.ProbeTCP, lb.ProbeUDP, lb.ProbeHTTP, lb.ProbeHTTPS, lb.ProbeGRPC, lb.ProbeDNS, lb.ProbePing} {
		spec.Probe.Type = kind
		wantError(t, spec, notAssigned)
	}
}

// TestNoRoute checks that an endpoint without a route is down.
func TestNoRoute(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"192.0.2.1:80", "[2001:db8::1]:80"} {
		spec := Spec{To: netip.MustParseAddrPort(to), Probe: lb.Probe{Request: "x", Response: "x"}}
		if o := connect(t, connector(t), spec); o.err == nil || o.err.Error() != "network is unreachable" {
			t.Errorf("connector to %s: %v", to, o.err)
		}
		for _, kind := range []lb.ProbeType{lb.ProbePing, lb.ProbeTCP, lb.ProbeUDP, lb.ProbeHTTP, lb.ProbeHTTPS, lb.ProbeGRPC, lb.ProbeDNS} {
			spec.Probe.Type = kind
			wantError(t, spec, "network is unreachable")
		}
	}
}

// TestNoTimeWait checks that no probe leaves a port in TIME_WAIT, on either side.
func TestNoTimeWait(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		spec := Spec{Probe: lb.Probe{Type: lb.ProbeTCP, Request: "a", Response: "b"}}
		spec.To = serve(t, loopback, func(c net.Conn) {
			c.Read(make([]byte, 100))
			c.Write([]byte("b"))
			hold(c)
		})
		c := connector(t)
		for range 20 {
			wantAnswer(t, spec, "answered")
			connect(t, c, spec)
		}
		for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			text, err := os.ReadFile(table)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				f := strings.Fields(line)
				if f[3] == "06" && (strings.HasSuffix(f[1], fmt.Sprintf(":%04X", spec.To.Port())) || strings.HasSuffix(f[2], fmt.Sprintf(":%04X", spec.To.Port()))) {
					t.Errorf("in TIME_WAIT: %s", line)
				}
			}
		}
	})
}

// TestConnectorReuse checks that a reused socket reports the result of its current connection, with
// many sockets at a time.
func TestConnectorReuse(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		open := serve(t, loopback, hold)
		c := connector(t)
		spec := Spec{To: open, Probe: lb.Probe{Timeout: 5 * time.Second}}
		for round := range 5 {
			const attempts = 1000
			ended := 0
			for range attempts {
				if _, err := c.Start(spec, func(_ Answer, err error) {
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

// TestDropIdle checks that idle sockets can be closed one by one, and that probes work without
// them.
func TestDropIdle(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		open := serve(t, loopback, func(c net.Conn) { c.Close() })
		c := connector(t)
		for range 2 {
			if o := connect(t, c, Spec{To: open, Probe: lb.Probe{Type: lb.ProbeTCP}}); o.err != nil {
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
