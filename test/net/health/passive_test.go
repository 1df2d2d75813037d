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

// passiveRig has three endpoints without probes, which answer.
func passiveRig(t *testing.T, flags string) (*wired, []*restartableServer, string) {
	t.Helper()
	r := newWired(t, rig.Options{})
	servers := restartableServers(r.Rig)
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s %s", rig.VIP4, rig.Endpoints4(), flags)
	address := rig.Join(rig.VIP4, 80)
	wantServers(r.Rig, address, "ep1", "ep2", "ep3")
	return r, servers, address
}

// knock opens connections at this interval until stop is called, which returns the start times of
// those that were not established within a second.
func knock(r *rig.Rig, address string, every time.Duration) (stop func() (failed []time.Duration)) {
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
					if _, err = serverOf(c); err == nil {
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

// wantBriefly checks that connections failed for at most a second after the first failure.
func wantBriefly(t *testing.T, failed []time.Duration) {
	t.Helper()
	if len(failed) == 0 {
		t.Fatal("no connection failed: the endpoint was not tried")
	}
	took := failed[len(failed)-1] - failed[0]
	t.Logf("%d connections failed, begun within %s", len(failed), took.Round(time.Millisecond))
	if took > time.Second+passiveSlack {
		t.Errorf("connections went to the dead endpoint for %s: %s", took, failed)
	}
}

// TestBlackholed checks that an endpoint whose host is unreachable gets no new connection after a
// second although it has no probe, and that it gets some again after its return.
//
// P43 An endpoint that stops answering gets no new connection one second after the first unanswered
// one, without any probe
func TestBlackholed(t *testing.T) {
	t.Parallel()
	r, _, address := passiveRig(t, "")
	stop := knock(r.Rig, address, 50*time.Millisecond)
	r.blackhole(1, true)
	r.EventuallyShows("get lb -o wide", "32.32.32.1", " down ")
	wantServers(r.Rig, address, "ep1", "ep3") // counts failures in the meantime
	wantBriefly(t, stop())
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
		t.Errorf("%v SYNs are counted that were not answered", n)
	}
	if up := r.Metric("endpoint_up", "endpoint=32.32.32.1:5001"); up != 0 {
		t.Errorf("loxilb_endpoint_up is %v", up)
	}
	r.blackhole(1, false)
	r.EventuallyShows("get ep", "32.32.32.1_none_5001", " unprobed ")
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if _, who, err := greet(r.Rig, address); err != nil || who != "ep2" {
			return fmt.Errorf("%q answers, %w", who, err)
		}
		return nil
	})
	wantServers(r.Rig, address, "ep1", "ep2", "ep3")
}

// blackhole sets whether an endpoint's link loses all packets.
func (w *wired) blackhole(endpoint int, on bool) {
	w.T.Helper()
	var f faulty.Faults
	if on {
		f.Loss = 1
	}
	if err := w.wires[w.Endpoints[endpoint].Name].Set(f); err != nil {
		w.T.Fatal(err)
	}
}

// TestFullBacklog checks that a server that is stopped while clients connect gets no new connection
// a second after its backlog is full.
func TestFullBacklog(t *testing.T) {
	t.Parallel()
	r, servers, address := passiveRig(t, "")
	servers[1].stop()
	l := stuck(r.Rig, 1, 1)
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
	// From here on only clients fail that reuse the port of an unanswered connection.
	before := opened()
	for range 300 {
		_ = connect()
	}
	if after := opened(); after != before {
		t.Errorf("%v connections have gone to the endpoint since its backlog was full for %s", after-before, time.Second+passiveSlack)
	}
	r.EventuallyShows("get ep", "32.32.32.1_none_5001", " down ", "client ", "no answer within")
}

// stuck returns a listener of an endpoint that accepts nothing, with a backlog of this many
// connections and one more.
func stuck(r *rig.Rig, endpoint, backlog int) net.Listener {
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

// TestResetsBeforeData checks that a server that accepts all connections and resets them before it
// sends data no longer gets connections, and gets some again after its recovery, unless the service
// turns this off.
func TestResetsBeforeData(t *testing.T) {
	t.Parallel()
	r, servers, address := passiveRig(t, "")
	reset := func(c net.Conn) {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	well := servers[1].handle
	servers[1].stop()
	servers[1].handle = reset
	servers[1].start()
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		for range 6 {
			c, _, err := greet(r.Rig, address)
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
	servers[1].handle = well
	servers[1].start()
	r.EventuallyShows("get ep", "32.32.32.1_none_5001", " unprobed ")
	servers[1].stop()
	servers[1].handle = reset
	servers[1].start()
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --outlier=off", rig.VIP4, rig.Endpoints4())
	failed := 0
	for range 30 {
		if c, _, err := greet(r.Rig, address); err != nil {
			failed++
		} else {
			_ = c.Close()
		}
	}
	if failed != 10 {
		t.Errorf("%d of 30 connections failed, want those of one endpoint", failed)
	}
}

// TestRefusedSYNs checks that an endpoint with a closed port, or that a router reports as
// unreachable, no longer gets connections, and that the service's own probe brings it back.
func TestRefusedSYNs(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(r *wired, m *restartableServer) (mend func()){
		"closed": func(_ *wired, m *restartableServer) func() { m.stop(); return m.start },
		"unreachable": func(r *wired, _ *restartableServer) func() { // the host reports an address that it no longer has
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
			r, servers, address := passiveRig(t, "--monitor --probe-interval=2s --probe-retries=100")
			stop := knock(r.Rig, address, 50*time.Millisecond)
			mend := fail(r, servers[1])
			r.EventuallyShows("get ep", "32.32.32.1_none_5001", " down ", "client ")
			wantServers(r.Rig, address, "ep1", "ep3") // counts failures in the meantime
			wantBriefly(t, stop())
			wantServers(r.Rig, address, "ep1", "ep3")
			mend()
			r.EventuallyShows("get ep", "32.32.32.1_none_5001", " up ")
			wantServers(r.Rig, address, "ep1", "ep2", "ep3")
		})
	}
}

// TestMostOut checks that two of three endpoints leave while the third serves clients, and return
// when that one is reported down.
//
// P44 Failing handshakes take out at most half of a service's endpoints, and none while probes
// leave fewer than half, unless another endpoint serves clients meanwhile: then each endpoint
// leaves that our own connections cannot reach either; a level that has backups may lose all
func TestMostOut(t *testing.T) {
	t.Parallel()
	r, _, address := passiveRig(t, "")
	r.blackhole(0, true)
	r.blackhole(1, true)
	stop := knock(r.Rig, address, 100*time.Millisecond)
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if out := endpointsOut(r.Rig); len(out) != 2 {
			return fmt.Errorf("%v are out: %s", out, r.Loxicmd("get ep"))
		}
		return nil
	})
	wantServers(r.Rig, address, "ep3")
	failed := stop()
	took := failed[len(failed)-1] - failed[0]
	t.Logf("%d connections failed, begun within %s", len(failed), took.Round(time.Millisecond))
	if took > 3*time.Second+passiveSlack {
		t.Errorf("connections went to dead endpoints for %s", took)
	}
	// An agent takes out the healthy endpoint: with none left, handshakes take out none.
	out := endpointsOut(r.Rig)[0]
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --monitor --probe-interval=1h --probe-retries=100", rig.VIP4, rig.Endpoints4())
	setHostState(r.Rig, "17.17.17.1", "red")
	r.EventuallyShows("get lb -o wide", "17.17.17.1", " down ")
	r.blackhole(map[string]int{"31.31.31.1": 0, "32.32.32.1": 1}[out], false)
	name := map[string]string{"31.31.31.1": "ep1", "32.32.32.1": "ep2"}[out]
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if _, who, err := greet(r.Rig, address); err != nil || who != name {
			return fmt.Errorf("%q answers, %w", who, err)
		}
		return nil
	})
}

// TestAllDead checks that every endpoint of a service without probes is reported as down when all
// servers are dead, although one stays in rotation. The same holds for the only endpoint of a
// service.
func TestAllDead(t *testing.T) {
	t.Parallel()
	for name, endpoints := range map[string][]string{"two": {"31.31.31.1", "32.32.32.1"}, "one": {"31.31.31.1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newWired(t, rig.Options{})
			servers := restartableServers(r.Rig)
			r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s:1", rig.VIP4, strings.Join(endpoints, ":1,"))
			address := rig.Join(rig.VIP4, 80)
			wantServers(r.Rig, address, []string{"ep1", "ep2"}[:len(endpoints)]...)
			for i := range endpoints {
				servers[i].stop()
			}
			stop := knock(r.Rig, address, 50*time.Millisecond)
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

// TestSYNAgain checks that a client whose SYN was sent to an unreachable endpoint connects with its
// next SYN after the endpoint is known to be down: three seconds later, at the second
// retransmission. The same holds if the endpoint is removed.
//
// P46 A client that connects while an endpoint dies reaches another one, once the endpoint is known
// not to answer
func TestSYNAgain(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*wired){
		"down": func(r *wired) { r.EventuallyShows("get lb -o wide", "32.32.32.1", " down ") },
		"removed": func(r *wired) {
			r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=31.31.31.1:1,17.17.17.1:1 --outlier=off", rig.VIP4)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _, address := passiveRig(t, map[string]string{"removed": "--outlier=off"}[name])
			r.blackhole(1, true)
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

// endpointsOut returns the addresses of endpoints that are taken out.
func endpointsOut(r *rig.Rig) (list []string) {
	r.T.Helper()
	for line := range strings.Lines(r.Loxicmd("get ep")) {
		if words := strings.Fields(line); slices.Contains(words, "down") && !strings.Contains(line, "kept in rotation") {
			list = append(list, words[1])
		}
	}
	return list
}

// TestForged checks that SYNs from forged addresses, with RSTs and ICMP errors that pretend to come
// from endpoints, do not take out an endpoint that answers.
//
// P45 Spoofed packets of a sender that does not see the endpoints' packets take out no endpoint
func TestForged(t *testing.T) {
	t.Parallel()
	r, _, address := passiveRig(t, "")
	if err := r.Client.Do(r.forge); err != nil {
		t.Fatal(err)
	}
	if down := endpointsOut(r.Rig); len(down) > 0 {
		t.Errorf("%v are out: %s", down, r.Loxicmd("get ep"))
	}
	for _, event := range []string{"refused", "reset", "unreachable"} {
		if n := r.Metric("endpoint_handshakes_total", "endpoint=32.32.32.1:5001", "event="+event); n != 0 {
			t.Errorf("%v %s are counted", n, event)
		}
	}
	wantServers(r.Rig, address, "ep1", "ep2", "ep3")
}

// forge sends for some seconds what an attacker can send who does not see replies, from the
// client's network, at a rate below that of challenges.
func (w *wired) forge() error {
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
			if _, _, err := greet(w.Rig, rig.Join(rig.VIP4, 80)); err != nil {
				return err
			}
		}
	}
	return nil
}
