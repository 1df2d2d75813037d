package net_test

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

	"loxilb/internal/netnstest/faulty"
	"loxilb/internal/netnstest/labtest"
	"loxilb/internal/pkt"
)

// passiveRig has three endpoints of which nobody has probes, and that have answered.
func passiveRig(t *testing.T, flags string) (*wired, []*mortal, string) {
	t.Helper()
	r := newWired(t, options{})
	servers := r.mortals()
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s %s", vip4, endpoints4(), flags)
	address := join(vip4, 80)
	r.wantServers(address, "ep1", "ep2", "ep3")
	return r, servers, address
}

// knock begins a connection every so often until stop is called, which says when each was begun that has not come about within a second.
func (r *rig) knock(address string, every time.Duration) (stop func() (failed []time.Duration)) {
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
					if _, err = says(c); err == nil {
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

// passiveSlack is what a busy machine may take longer than is promised.
const passiveSlack = 500 * time.Millisecond

// wantBriefly wants connections to fail for no longer than a second after the first that did.
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

// TestBlackholed: an endpoint whose host is gone gets no new connection after a second, though nobody probes it; and gets some again when it is
// back.
//
// P43 an endpoint that no longer answers gets no new connection a second after the first one that it left unanswered, without any probe
func TestBlackholed(t *testing.T) {
	t.Parallel()
	r, _, address := passiveRig(t, "")
	stop := r.knock(address, 50*time.Millisecond)
	r.blackhole(1, true)
	r.eventuallyShows("get lb -o wide", "32.32.32.1", " inactive ")
	r.wantServers(address, "ep1", "ep3") // meanwhile connections that fail are counted
	wantBriefly(t, stop())
	for line, words := range map[string][]string{
		"get ep":                          {"32.32.32.1_none_5001", " nok ", "passive: ", " without an answer in "},
		"get ep -o wide":                  {"20.20.20.1:80/tcp", " nok: passive: "},
		"get events --kind=health":        {"endpoint 32.32.32.1:5001 is down: passive: "},
		"describe lb " + vip4 + ":80/tcp": {"endpoint 32.32.32.1_none_5001 is nok: passive: "},
	} {
		r.eventuallyShows(line, words...)
	}
	r.wantServers(address, "ep1", "ep3")
	if n := r.metric("endpoint_handshakes_total", "endpoint=32.32.32.1:5001", "event=opened") - r.metric("endpoint_handshakes_total", "endpoint=32.32.32.1:5001", "event=answered"); n < 1 {
		t.Errorf("%v SYNs are counted that were not answered", n)
	}
	if up := r.metric("endpoint_up", "endpoint=32.32.32.1:5001"); up != 0 {
		t.Errorf("loxilb_endpoint_up is %v", up)
	}
	r.blackhole(1, false)
	r.eventuallyShows("get ep", "32.32.32.1_none_5001", " ok ")
	labtest.Eventually(t, patience, func(context.Context) error {
		if _, who, err := r.greet(address); err != nil || who != "ep2" {
			return fmt.Errorf("%q answers, %w", who, err)
		}
		return nil
	})
	r.wantServers(address, "ep1", "ep2", "ep3")
}

// blackhole has an endpoint's link lose all packets, or none.
func (w *wired) blackhole(endpoint int, on bool) {
	w.t.Helper()
	var f faulty.Faults
	if on {
		f.Lose = 1
	}
	if err := w.wires[w.Endpoints[endpoint].Name].Set(f); err != nil {
		w.t.Fatal(err)
	}
}

// TestFullBacklog: a server that is stopped while clients connect gets no new connection a second after its backlog is full.
func TestFullBacklog(t *testing.T) {
	t.Parallel()
	r, servers, address := passiveRig(t, "")
	servers[1].stop()
	l := r.stuck(1, 1)
	defer l.Close() //nolint:errcheck // of a test
	opened := func() float64 {
		return r.metric("endpoint_handshakes_total", "endpoint=32.32.32.1:5001", "event=opened")
	}
	connect := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		c, err := r.Client.DialContext(ctx, "tcp", address)
		if err == nil {
			_ = c.Close() // the server's side stays in the backlog
		}
		return err
	}
	for begun := time.Now(); connect() == nil; {
		if time.Since(begun) > patience {
			t.Fatal("the backlog is never full")
		}
	}
	for full := time.Now(); time.Since(full) < time.Second+passiveSlack; {
		_ = connect()
	}
	// What fails from here on is of a client that has the port again of a connection that was not answered.
	before := opened()
	for range 300 {
		_ = connect()
	}
	if after := opened(); after != before {
		t.Errorf("%v connections have gone to the endpoint since its backlog was full for %s", after-before, time.Second+passiveSlack)
	}
	r.eventuallyShows("get ep", "32.32.32.1_none_5001", " nok ", "passive: ", "no answer within")
}

// stuck is a listener of an endpoint that accepts nothing, with room for as many connections and one.
func (r *rig) stuck(endpoint, backlog int) net.Listener {
	r.t.Helper()
	l := rebind(r.t, r.Endpoints[endpoint], ":5001")
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		r.t.Fatal(err)
	}
	if e := raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), backlog) }); e != nil || err != nil {
		r.t.Fatal(e, err)
	}
	return l
}

// TestResetsBeforeData: a server that accepts connections and resets them all before it says anything gets no more, and gets some again
// when it is well; unless the service says otherwise.
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
	labtest.Eventually(t, patience, func(context.Context) error {
		for range 6 {
			c, _, err := r.greet(address)
			if err != nil {
				return err
			}
			_ = c.Close()
		}
		return nil
	})
	r.eventuallyShows("get ep", "32.32.32.1_none_5001", " nok ", "connections reset before an answer")
	r.wantServers(address, "ep1", "ep3")
	servers[1].stop()
	servers[1].handle = well
	servers[1].start()
	r.eventuallyShows("get ep", "32.32.32.1_none_5001", " ok ")
	servers[1].stop()
	servers[1].handle = reset
	servers[1].start()
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --outlier=off", vip4, endpoints4())
	failed := 0
	for range 30 {
		if c, _, err := r.greet(address); err != nil {
			failed++
		} else {
			_ = c.Close()
		}
	}
	if failed != 10 {
		t.Errorf("%d of 30 connections failed, want those of one endpoint", failed)
	}
}

// TestRefusedSYNs: an endpoint whose port is closed, or to which a router says that there is no way, gets no more connections; and the
// service's own probe brings it back.
func TestRefusedSYNs(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(r *wired, m *mortal) (mend func()){
		"closed": func(_ *wired, m *mortal) func() { m.stop(); return m.start },
		"unreachable": func(r *wired, _ *mortal) func() { // the host says so of an address that it no longer has
			run := func(args string) {
				if _, err := r.Endpoints[1].Run(strings.Fields(args)...); err != nil {
					r.t.Fatal(err)
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
			stop := r.knock(address, 50*time.Millisecond)
			mend := fail(r, servers[1])
			r.eventuallyShows("get ep", "32.32.32.1_tcp_5001", " nok ", "passive: ")
			r.wantServers(address, "ep1", "ep3") // meanwhile connections that fail are counted
			wantBriefly(t, stop())
			r.wantServers(address, "ep1", "ep3")
			mend()
			r.eventuallyShows("get ep", "32.32.32.1_tcp_5001", " ok ")
			r.wantServers(address, "ep1", "ep2", "ep3")
		})
	}
}

// TestMostOut: of three endpoints no more than one is taken out; and none while fewer than half would be left.
//
// P44 handshakes that fail take out no more than half of a service's endpoints, and none while probes leave fewer than half
func TestMostOut(t *testing.T) {
	t.Parallel()
	r, _, address := passiveRig(t, "")
	r.blackhole(0, true)
	r.blackhole(1, true)
	stop := r.knock(address, 100*time.Millisecond)
	r.eventuallyShows("get ep", "_none_5001", " nok ", "passive: ")
	for begun := time.Now(); time.Since(begun) < 3*time.Second; { // a second one would be out by then
		if c, _, err := r.greet(address); err == nil {
			_ = c.Close()
		}
	}
	stop()
	if n := len(r.down()); n != 1 {
		t.Errorf("%d endpoints are out: %s", n, r.loxicmd("get ep"))
	}
	// An agent takes out the one that is well: with one of three left, none is out for handshakes.
	out := r.down()[0]
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --monitor --probe-interval=1h --probe-retries=100", vip4, endpoints4())
	r.setHostState("17.17.17.1", "red")
	r.eventuallyShows("get lb -o wide", "17.17.17.1", " inactive ")
	r.blackhole(map[string]int{"31.31.31.1": 0, "32.32.32.1": 1}[out], false)
	name := map[string]string{"31.31.31.1": "ep1", "32.32.32.1": "ep2"}[out]
	labtest.Eventually(t, patience, func(context.Context) error {
		if _, who, err := r.greet(address); err != nil || who != name {
			return fmt.Errorf("%q answers, %w", who, err)
		}
		return nil
	})
}

// TestSYNAgain: a client whose SYN has met an endpoint that is gone is connected by the next SYN that it sends after that is known: in
// three seconds, the time of its second repetition, and not never. So too if the endpoint is removed.
//
// P46 who dials while an endpoint dies is connected to another one, once it is known that nobody answers there
func TestSYNAgain(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*wired){
		"down": func(r *wired) { r.eventuallyShows("get lb -o wide", "32.32.32.1", " inactive ") },
		"removed": func(r *wired) {
			r.loxicmd("create lb %s --tcp=80:5001 --endpoints=31.31.31.1:1,17.17.17.1:1 --outlier=off", vip4)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _, address := passiveRig(t, map[string]string{"removed": "--outlier=off"}[name])
			r.blackhole(1, true)
			failed := make(chan error)
			for range 6 { // two of them go there
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
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

// down are the addresses of endpoints that are out.
func (r *rig) down() (list []string) {
	r.t.Helper()
	for line := range strings.Lines(r.loxicmd("get ep")) {
		if words := strings.Fields(line); slices.Contains(words, "nok") {
			list = append(list, words[1])
		}
	}
	return list
}

// TestForged: SYNs from made-up addresses, with RSTs and ICMP errors that pretend to come from endpoints, take no endpoint out that
// answers.
//
// P45 no packet made up by somebody who does not see those of the endpoints has an endpoint taken out
func TestForged(t *testing.T) {
	t.Parallel()
	r, _, address := passiveRig(t, "")
	if err := r.Client.Do(r.forge); err != nil {
		t.Fatal(err)
	}
	if down := r.down(); len(down) > 0 {
		t.Errorf("%v are out: %s", down, r.loxicmd("get ep"))
	}
	for _, event := range []string{"refused", "reset", "unreachable"} {
		if n := r.metric("endpoint_handshakes_total", "endpoint=32.32.32.1:5001", "event="+event); n != 0 {
			t.Errorf("%v %s are counted", n, event)
		}
	}
	r.wantServers(address, "ep1", "ep2", "ep3")
}

// forge sends what one may who does not see answers, from the client's network, for some seconds, at a pace at which nobody is challenged.
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
			"tcp " + source + " > " + join(vip4, 80) + " S seq 1000",
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
			if _, _, err := w.greet(join(vip4, 80)); err != nil {
				return err
			}
		}
	}
	return nil
}
