package health_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// defaultClients is the default number of clients.
const defaultClients = 8

// startClients opens connections from several addresses of the client's host until stop is called.
// A connection counts as failed if it does not open within a second, or its request gets no answer.
func startClients(r *rig.Rig, address, request string, every time.Duration, several int) (stop func() (failed, done int64)) {
	r.T.Helper()
	for i := range several {
		if err := r.Client.AddAddress("eth0", netip.MustParsePrefix(fmt.Sprintf("100.100.100.%d/24", 10+i))); err != nil {
			r.T.Fatal(err)
		}
	}
	var failed, done atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 1000)
	one := func(n int) {
		defer func() { ended <- struct{}{} }()
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(100, 100, 100, byte(10+n%several))}, Timeout: time.Second}
		var c net.Conn
		err := r.Client.Do(func() (err error) {
			c, err = dialer.Dial("tcp", address)
			return err
		})
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			if _, err = c.Write([]byte(request)); err == nil {
				_, err = c.Read(make([]byte, 64))
			}
			_ = c.Close()
		}
		if err != nil {
			failed.Add(1)
		} else {
			done.Add(1)
		}
	}
	started := make(chan int, 1)
	go func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				started <- n
				return
			case <-ticker.C:
				go one(n)
			}
		}
	}()
	return func() (int64, int64) {
		cancel()
		for range <-started {
			<-ended
		}
		return failed.Load(), done.Load()
	}
}

// TestAnswersBypass checks that an endpoint no longer gets connections if its answers to clients
// bypass the load balancer, although its probe succeeds. It gets some again once a connection
// succeeds.
//
// P74 An endpoint whose answers to clients bypass the load balancer is taken out, even if its probe
// succeeds
func TestAnswersBypass(t *testing.T) {
	t.Parallel()
	r, _, address := newPassiveRig(t, "--monitor --probe-interval=500ms")
	route := func(verb string) {
		if _, err := r.Endpoints[1].Run("ip", "route", verb, "blackhole", "100.100.100.0/24"); err != nil {
			t.Fatal(err)
		}
	}
	stop := startClients(r.Rig, address, "hello", 30*time.Millisecond, defaultClients)
	route("add")
	begun := time.Now()
	r.EventuallyShows("get ep", "32.32.32.1_none_5001", " down ", "its replies bypass this machine")
	t.Logf("the endpoint is taken out after %s", time.Since(begun).Round(100*time.Millisecond))
	r.EventuallyShows("get ep", "32.32.32.1_tcp_5001", " down ", "accepts connections")
	route("del")
	labtest.Eventually(t, 2*rig.Patience, func(context.Context) error { // the next trial
		if out := endpointsTakenOut(r.Rig); len(out) > 0 {
			return fmt.Errorf("%v are out", out)
		}
		return nil
	})
	stop()
	wantServers(r.Rig, address, "ep1", "ep2", "ep3")
}

// TestServerHangs checks that a server stopped by SIGSTOP, whose kernel still accepts connections,
// gets only one connection in ten seconds, and its share again after it continues.
//
// P75 An endpoint that accepts connections and answers none, while others answer, is taken out
// three seconds after the first connection that had no answer for three seconds
func TestServerHangs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sel     string
		clients int
	}{{"rr", defaultClients}, {"hash", 60}, {"persist", 60}} {
		t.Run(c.sel, func(t *testing.T) {
			t.Parallel()
			checkServerHangs(t, c.sel, c.clients)
		})
	}
}

func checkServerHangs(t *testing.T, sel string, several int) {
	t.Helper()
	r := newWireRig(t, rig.Options{})
	var servers []*netnstest.Process
	for _, h := range r.Endpoints {
		p, err := h.Start(netnstest.Command{Args: []string{os.Args[0]}, Env: []string{serveAs + "=" + h.Name}})
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, p)
	}
	r.Loxicmd("create lb %s --tcp=80:5001 --select=%s --endpoints=%s", rig.VIP4, sel, rig.Endpoints4())
	address := rig.Join(rig.VIP4, 80)
	for _, h := range r.Endpoints {
		labtest.Eventually(t, rig.Patience, func(context.Context) error {
			c, err := h.DialContext(t.Context(), "tcp", "127.0.0.1:5001")
			if err == nil {
				err = c.Close()
			}
			return err
		})
	}
	stop := startClients(r.Rig, address, "hello, who is there? say so\n", 30*time.Millisecond, several)
	for _, e := range []string{"31.31.31.1", "32.32.32.1", "17.17.17.1"} {
		r.EventuallyMetric(20, "endpoint_handshakes_total", "endpoint="+e+":5001", "event=answered")
	}
	if strings.Contains(r.Loxicmd("get ep"), " down ") {
		t.Fatal("an endpoint that answers is taken out")
	}
	servers[1].Signal(syscall.SIGSTOP)
	begun := time.Now()
	r.EventuallyShows("get ep", "32.32.32.1_none_5001", " down ", "without an answer for 3 s")
	t.Logf("the endpoint is taken out after %s", time.Since(begun).Round(100*time.Millisecond))
	opened := func() float64 {
		return r.Metric("endpoint_handshakes_total", "endpoint=32.32.32.1:5001", "event=opened")
	}
	r.EventuallyShows("get lb -o wide", "32.32.32.1", " down ")
	before := opened()
	labtest.Eventually(t, 2*rig.Patience, func(context.Context) error {
		if opened() == before {
			return fmt.Errorf("no trial connection was opened")
		}
		return nil
	})
	if n := opened() - before; n > 1 {
		t.Errorf("%v trial connections were opened, want 1", n)
	}
	servers[1].Signal(syscall.SIGCONT)
	labtest.Eventually(t, 2*rig.Patience, func(context.Context) error { // the next trial
		if out := endpointsTakenOut(r.Rig); len(out) > 0 {
			return fmt.Errorf("%v are out", out)
		}
		return nil
	})
	failed, done := stop()
	t.Logf("%d connections failed, %d did not", failed, done)
	if sel == "rr" { // other algorithms keep each client's endpoint
		wantServers(r.Rig, address, "ep1", "ep2", "ep3")
	}
}
