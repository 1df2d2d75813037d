package health_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/pkt"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest/faulty"
	"loxilb/test/netnstest/labtest"
)

// newPassiveRig returns a rig with a service of three endpoints, their servers, and the service's
// address.
func newPassiveRig(t *testing.T, flags string) (*wireRig, []*restartableServer, string) {
	t.Helper()
	r := newWireRig(t, rig.Options{})
	servers := startServers(r.Rig)
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s %s", rig.VIP4, rig.Endpoints4(), flags)
	address := rig.Join(rig.VIP4, 80)
	wantServers(r.Rig, address, "ep1", "ep2", "ep3")
	return r, servers, address
}

// openRepeatedly opens a connection every interval until stop is called. stop returns when failed
// attempts began: those that were not answered within a second.
func openRepeatedly(r *rig.Rig, address string, every time.Duration) (stop func() (failed []time.Duration)) {
	start, done := time.Now(), make(chan struct{})
	var (
		mu      sync.Mutex
		failed  []time.Duration
		running sync.WaitGroup
	)
	running.Go(func() {
		for ticker := time.NewTicker(every); ; {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			running.Go(func() {
				begun := time.Since(start)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				c, err := r.Client.DialContext(ctx, "tcp", address)
				if err == nil {
					if _, err = askServer(c); err == nil {
						_ = c.Close()
						return
					}
					_ = c.Close()
				}
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, begun)
			})
		}
	})
	return func() []time.Duration {
		close(done)
		running.Wait()
		slices.Sort(failed)
		return failed
	}
}

// passiveSlack is the delay that a busy machine may add to the promised time.
const passiveSlack = 500 * time.Millisecond

// wantBriefFailures checks that connections failed, and only for a second after the first failure.
func wantBriefFailures(t *testing.T, failed []time.Duration) {
	t.Helper()
	if len(failed) == 0 {
		t.Fatal("no connection failed: the endpoint was not tried")
	}
	took := failed[len(failed)-1] - failed[0]
	t.Logf("%d connections failed within %s", len(failed), took.Round(time.Millisecond))
	if took > time.Second+passiveSlack {
		t.Errorf("connections went to the failed endpoint for %s: %s", took, failed)
	}
}

// TestBlackholed checks that an unreachable endpoint without a probe gets no new connection after a
// second, and that it gets some when it is reachable again.
//
// P43 An endpoint that stops answering gets no new connection from one second after the first
// unanswered one on, without any probe
func TestBlackholed(t *testing.T) {
	t.Parallel()
	r, _, address := newPassiveRig(t, "")
	stop := openRepeatedly(r.Rig, address, 50*time.Millisecond)
	r.setBlackhole(1, true)
	r.EventuallyShows("get lb -o wide", "32.32.32.1", " down ")
	wantServers(r.Rig, address, "ep1", "ep3") // counts failures in the meantime
	wantBriefFailures(t, stop())
	for line, words := range map[string][]string{
		"get ep":                              {"32.32.32.1_none_5001", " down ", "client SYN", " without an answer in "},
		"get ep -o wide":                      {"20.20.20.1:80/tcp", " down: ", "client SYN"},
		"get events --kind=health":            {"endpoint 32.32.32.1:5001 is down: ", "client SYN"},
		"describe lb " + rig.VIP4 + ":80/tcp": {"endpoint 32.32.32.1:5001 is down: ", "client SYN"},
	} {
		r.EventuallyShows(line, words...)
	}
	wantServers(r.Rig, address, "ep1", "ep3")
	if n := r.Metric("endpoint_handshakes_total", "endpoint=32.32.32.1:5001", "event=opened") - r.Metric("endpoint_handshakes_total",
		"endpoint=32.32.32.1:5001", "event=answered"); n < 1 {
		t.Errorf("%v unanswered SYNs are counted, want at least 1", n)
	}
	if up := r.Metric("endpoint_up", "endpoint=32.32.32.1:5001"); up != 0 {
		t.Errorf("loxilb_endpoint_up is %v", up)
	}
	r.setBlackhole(1, false)
	r.EventuallyShows("get ep", "32.32.32.1_none_5001", " unprobed ")
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if _, who, err := dialServer(r.Rig, address); err != nil || who != "ep2" {
			return fmt.Errorf("%q answers, %w", who, err)
		}
		return nil
	})
	wantServers(r.Rig, address, "ep1", "ep2", "ep3")
}

// setBlackhole makes an endpoint's link lose all packets, or none.
func (w *wireRig) setBlackhole(endpoint int, on bool) {
	w.T.Helper()
	var f faulty.Faults
	if on {
		f.Loss = 1
	}
	if err := w.wires[w.Endpoints[endpoint].Name].Set(f); err != nil {
		w.T.Fatal(err)
	}
}

// TestFullBacklog checks that a server that stops accepting connections gets no new ones from one
// second after its backlog is full on.
func TestFullBacklog(t *testing.T) {
	t.Parallel()
	r, servers, address := newPassiveRig(t, "")
	servers[1].stop()
	l := listenWithoutAccept(r.Rig, 1, 1)
	defer l.Close() //nolint:errcheck // of a test
	opened := func() float64 {
		return r.Metric("endpoint_handshakes_total", "endpoint=32.32.32.1:5001", "event=opened")
	}
	connect := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		c, err := r.Client.DialContext(ctx, "tcp", address)
		if err == nil {
			_ = c.Close() // the connection stays in the server's backlog
		}
		return err
	}
	for begun := time.Now(); connect() == nil; {
		if time.Since(begun) > rig.Patience {
			t.Fatal("the backlog is never full")
		}
	}
	for full := time.Now(); time.Since(full) < time.Second+passiveSlack; {
		_ = connect()
	}
	// From here on, only connections fail that reuse the port of an unanswered one.
	before := opened()
	for range 300 {
		_ = connect()
	}
	if after := opened(); after != before {
		t.Errorf("the endpoint got %v connections after its backlog was full for %s", after-before, time.Second+passiveSlack)
	}
	r.EventuallyShows("get ep", "32.32.32.1_none_5001", " down ", "client ", "no answer within")
}

// listenWithoutAccept returns a listener on an endpoint that accepts no connection. Its queue holds
// backlog+1 connections.
func listenWithoutAccept(r *rig.Rig, endpoint, backlog int) net.Listener {
	r.T.Helper()
	l := rebind(r.T, r.Endpoints[endpoint], ":5001")
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		r.T.Fatal(err)
	}
	if e := raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), backlog) }); e != nil || err != nil {
		r.T.Fatalf("got %v %v, want e == nil, no error", e, err)
	}
	return l
}

// TestResetsBeforeData checks that a server that resets all connections before it sends data no
// longer gets connections, and gets some again after its recovery. A service can disable this.
func TestResetsBeforeData(t *testing.T) {
	t.Parallel()
	r, servers, address := newPassiveRig(t, "")
	reset := func(c net.Conn) {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	answer := servers[1].handle
	servers[1].stop()
	servers[1].handle = reset
	servers[1].start()
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		for range 6 {
			c, _, err := dialServer(r.Rig, address)
			if err != nil {
				return err
			}
			_ = c.Close()
		}
		return nil
	})
	r.EventuallyShows("get ep", "32.32.32.1_none_5001", " down ", "connections reset before an answer")
	wantServers(r.Rig, address, "ep1", "ep3")
	servers[1].stop()
	servers[1].handle = answer
	servers[1].start()
	r.EventuallyShows("get ep", "32.32.32.1_none_5001", " unprobed ")
	servers[1].stop()
	servers[1].handle = reset
	servers[1].start()
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --outlier=off", rig.VIP4, rig.Endpoints4())
	failed := 0
	for range 30 {
		if c, _, err := dialServer(r.Rig, address); err != nil {
			failed++
		} else {
			_ = c.Close()
		}
	}
	if failed != 10 {
		t.Errorf("%d of 30 connections failed, want the 10 of one endpoint", failed)
	}
}

// TestRefusedSYNs checks that an endpoint no longer gets connections if its port is closed or a
// router reports it as unreachable, and gets some again when the service's own probe succeeds.
func TestRefusedSYNs(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(r *wireRig, s *restartableServer) (repair func()){
		"closed": func(_ *wireRig, s *restartableServer) func() { s.stop(); return s.start },
		"unreachable": func(r *wireRig, _ *restartableServer) func() { // the host sends ICMP errors for an address that it no longer has
			run := func(args string) {
				if _, err := r.Endpoints[1].Run(strings.Fields(args)...); err != nil {
					r.T.Fatal(err)
				}
			}
			run("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.icmp_ratelimit=0")
			run("ip addr del 32.32.32.1/24 dev eth0")
			run("ip addr add 32.32.32.9/24 dev eth0")
			run("ip route replace default via 32.32.32.254")
			run("ip route add unreachable 32.32.32.1/32")
			return func() {
				run("ip route del unreachable 32.32.32.1/32")
				run("ip addr add 32.32.32.1/24 dev eth0")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, servers, address := newPassiveRig(t, "--monitor --probe-interval=2s --probe-retries=100")
			stop := openRepeatedly(r.Rig, address, 50*time.Millisecond)
			repair := fail(r, servers[1])
			r.EventuallyShows("get ep", "32.32.32.1_none_5001", " down ", "client ")
			wantServers(r.Rig, address, "ep1", "ep3") // counts failures in the meantime
			wantBriefFailures(t, stop())
			wantServers(r.Rig, address, "ep1", "ep3")
			repair()
			r.EventuallyShows("get ep", "32.32.32.1_none_5001", " up ")
			wantServers(r.Rig, address, "ep1", "ep2", "ep3")
		})
	}
}

// TestMajorityTakenOut checks that two of three endpoints are taken out while the third one serves
// clients, and get connections again when the third one is reported as down.
//
// P44 Failing handshakes take out at most half of a service's endpoints, and none while probes
// leave fewer than half. There are two exceptions: while another endpoint serves clients, each
// endpoint is taken out that the daemon's own connections cannot reach either; a level with backups
// may lose all
func TestMajorityTakenOut(t *testing.T) {
	t.Parallel()
	r, _, address := newPassiveRig(t, "")
	r.setBlackhole(0, true)
	r.setBlackhole(1, true)
	stop := openRepeatedly(r.Rig, address, 100*time.Millisecond)
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if out := endpointsTakenOut(r.Rig); len(out) != 2 {
			return fmt.Errorf("%v are out: %s", out, r.Loxicmd("get ep"))
		}
		return nil
	})
	wantServers(r.Rig, address, "ep3")
	failed := stop()
	took := failed[len(failed)-1] - failed[0]
	t.Logf("%d connections failed within %s", len(failed), took.Round(time.Millisecond))
	if took > 3*time.Second+passiveSlack {
		t.Errorf("connections went to failed endpoints for %s", took)
	}
	// An agent takes out the healthy endpoint. Failing handshakes then take out no endpoint.
	out := endpointsTakenOut(r.Rig)[0]
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --monitor --probe-interval=1h --probe-retries=100", rig.VIP4, rig.Endpoints4())
	setHostState(r.Rig, "17.17.17.1", "red")
	r.EventuallyShows("get lb -o wide", "17.17.17.1", " down ")
	r.setBlackhole(map[string]int{"31.31.31.1": 0, "32.32.32.1": 1}[out], false)
	name := map[string]string{"31.31.31.1": "ep1", "32.32.32.1": "ep2"}[out]
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if _, who, err := dialServer(r.Rig, address); err != nil || who != name {
			return fmt.Errorf("%q answers, %w", who, err)
		}
		return nil
	})
}

// TestAllDown checks that every endpoint of a service without probes is reported as down when all
// servers have ended, although one still gets connections. The same holds for the only endpoint of
// a service.
func TestAllDown(t *testing.T) {
	t.Parallel()
	for name, endpoints := range map[string][]string{"two": {"31.31.31.1", "32.32.32.1"}, "one": {"31.31.31.1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newWireRig(t, rig.Options{})
			servers := startServers(r.Rig)
			r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s:1", rig.VIP4, strings.Join(endpoints, ":1,"))
			address := rig.Join(rig.VIP4, 80)
			wantServers(r.Rig, address, []string{"ep1", "ep2"}[:len(endpoints)]...)
			for i := range endpoints {
				servers[i].stop()
			}
			stop := openRepeatedly(r.Rig, address, 50*time.Millisecond)
			for _, e := range endpoints {
				r.EventuallyShows("get ep", e+"_none_5001", " down ", "client ")
				labtest.Eventually(t, rig.Patience, func(context.Context) error {
					if up := r.Metric("endpoint_up", "endpoint="+e+":5001"); up != 0 {
						return fmt.Errorf("loxilb_endpoint_up of %s is %v", e, up)
					}
					return nil
				})
			}
			stop()
			for i := range endpoints {
				servers[i].start()
			}
			for _, e := range endpoints {
				r.EventuallyShows("get ep", e+"_none_5001", " unprobed ")
			}
			wantServers(r.Rig, address, []string{"ep1", "ep2"}[:len(endpoints)]...)
		})
	}
}

// TestSYNRetransmission checks that a client whose SYN went to an unreachable endpoint reaches
// another one by a retransmission, after the endpoint was detected as down: three seconds later, by
// the second one. The same holds if the endpoint is removed.
//
// P46 A client that connects while an endpoint fails reaches another one, once the failure is
// detected
func TestSYNRetransmission(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*wireRig){
		"down": func(r *wireRig) { r.EventuallyShows("get lb -o wide", "32.32.32.1", " down ") },
		"removed": func(r *wireRig) {
			r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=31.31.31.1:1,17.17.17.1:1 --outlier=off", rig.VIP4)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _, address := newPassiveRig(t, map[string]string{"removed": "--outlier=off"}[name])
			r.setBlackhole(1, true)
			failed := make(chan error)
			for range 6 { // two of them go to the failed endpoint
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
					defer cancel()
					c, err := r.Client.DialContext(ctx, "tcp", address)
					if err == nil {
						err = c.Close()
					}
					failed <- err
				}()
			}
			end(r)
			for range 6 {
				if err := <-failed; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// endpointsTakenOut returns the addresses of endpoints that are taken out.
func endpointsTakenOut(r *rig.Rig) (list []string) {
	r.T.Helper()
	for line := range strings.Lines(r.Loxicmd("get ep")) {
		if words := strings.Fields(line); slices.Contains(words, "down") && !strings.Contains(line, "kept in rotation") {
			list = append(list, words[1])
		}
	}
	return list
}

// TestForged checks that SYNs from forged addresses, and forged RSTs and ICMP errors of endpoints,
// do not take out an endpoint that answers.
//
// P45 Spoofed packets of a sender that does not see the endpoints' packets take out no endpoint
func TestForged(t *testing.T) {
	t.Parallel()
	r, _, address := newPassiveRig(t, "")
	if err := r.Client.Do(r.sendForged); err != nil {
		t.Fatal(err)
	}
	if down := endpointsTakenOut(r.Rig); len(down) > 0 {
		t.Errorf("%v are out: %s", down, r.Loxicmd("get ep"))
	}
	for _, event := range []string{"refused", "reset", "unreachable"} {
		if n := r.Metric("endpoint_handshakes_total", "endpoint=32.32.32.1:5001", "event="+event); n != 0 {
			t.Errorf("%v forged packets are counted as %s", n, event)
		}
	}
	wantServers(r.Rig, address, "ep1", "ep2", "ep3")
}

// sendForged sends packets of an attacker who does not see replies, from the client's network, at a
// rate below that of challenges.
func (w *wireRig) sendForged() error {
	link, err := w.Client.Netlink().LinkByName("eth0")
	if err != nil {
		return err
	}
	from, err := w.Client.MAC("eth0")
	if err != nil {
		return err
	}
	to, err := w.LB.MAC("client")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index}); err != nil {
		return err
	}
	for i := range 1500 {
		source := fmt.Sprintf("128.1.%d.%d:4000", i/250, 1+i%250)
		for _, text := range []string{
			"tcp " + source + " > " + rig.Join(rig.VIP4, 80) + " S seq 1000",
			"tcp 32.32.32.1:5001 > " + source + " RA seq 0 ack 77",
			"tcp 32.32.32.1:5001 > " + source + " R seq 77",
			"icmp 32.32.32.254 > " + source[:strings.IndexByte(source, ':')] + " unreach host / tcp " + source + " > 32.32.32.1:5001 S seq 7",
		} {
			p, err := pkt.Parse(text)
			if err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
			if _, err := unix.Write(fd, p.Set(pkt.From, pkt.MAC(from)).Set(pkt.To, pkt.MAC(to)).Build()); err != nil {
				return err
			}
		}
		if i%50 == 49 {
			if _, _, err := dialServer(w.Rig, rig.Join(rig.VIP4, 80)); err != nil {
				return err
			}
		}
	}
	return nil
}
