package net_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/netnstest"
	"loxilb/internal/netnstest/labtest"
)

// mortal is a server that ends and begins again; connections that it has accepted go on.
type mortal struct {
	t        testing.TB
	host     *netnstest.Host
	address  string
	handle   func(net.Conn)
	listener net.Listener
}

func (m *mortal) start() {
	m.t.Helper()
	l := rebind(m.t, m.host, m.address)
	m.listener = l
	m.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go m.handle(c)
		}
	}()
}

func (m *mortal) stop() {
	m.t.Helper()
	if err := m.listener.Close(); err != nil {
		m.t.Fatal(err)
	}
}

// rebind listens on a TCP address that another listener may just have left: a process that another test begins at that moment has
// a copy of its descriptor, until it runs its program.
func rebind(t testing.TB, h *netnstest.Host, address string) (l net.Listener) {
	t.Helper()
	labtest.Eventually(t, patience, func(context.Context) (err error) {
		l, err = h.Listen("tcp", address)
		return err
	})
	return l
}

// mortals are servers of all endpoints that answer each line with their name and the line.
func (r *rig) mortals() []*mortal {
	list := make([]*mortal, len(r.Endpoints))
	for i, h := range r.Endpoints {
		list[i] = &mortal{t: r.t, host: h, address: ":5001", handle: func(c net.Conn) {
			defer c.Close() //nolint:errcheck // of a test
			for buf := make([]byte, 64); ; {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				if _, err := fmt.Fprintf(c, "%s %s", h.Name, buf[:n]); err != nil {
					return
				}
			}
		}}
		list[i].start()
	}
	return list
}

// greet opens a connection, and says who is behind it.
func (r *rig) greet(address string) (net.Conn, string, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Second)
	defer cancel()
	c, err := r.Client.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, "", err
	}
	r.lab().Cleanup(func() { _ = c.Close() })
	who, err := says(c)
	return c, who, err
}

// says asks who is behind a connection.
func says(c net.Conn) (string, error) {
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte("hello")); err != nil {
		return "", err
	}
	buf := make([]byte, 64)
	n, err := c.Read(buf)
	name, _, _ := strings.Cut(string(buf[:n]), " ")
	return name, err
}

// wantServers makes connections, none of which may fail, and wants these servers and no others to get some.
func (r *rig) wantServers(address string, want ...string) {
	r.t.Helper()
	seen := map[string]bool{}
	for range 30 {
		c, who, err := r.greet(address)
		if err != nil {
			r.t.Fatalf("%s: %v", address, err)
		}
		_ = c.Close()
		seen[who] = true
	}
	var got []string
	for who := range seen {
		got = append(got, who)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		r.t.Errorf("%s: %v get connections, want %v", address, got, want)
	}
}

// eventuallyShows repeats a command until it prints a line with all of these words.
func (r *rig) eventuallyShows(line string, words ...string) {
	r.t.Helper()
	labtest.Eventually(r.t, patience, func(context.Context) error {
		out, err := r.Command(strings.Fields(line)...)
		if err != nil {
			return err
		}
		for one := range strings.Lines(out) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(one, w) }) {
				return nil
			}
		}
		return fmt.Errorf("no line has %q: %s", words, out)
	})
}

// TestHealth: an endpoint that ends gets no new connection after interval x fall, and keeps those that it has; none that is made after
// that fails. It gets some again when it is back.
func TestHealth(t *testing.T) {
	t.Parallel()
	const interval, fall = 200 * time.Millisecond, 2
	r := newRig(t, options{})
	servers := r.mortals()
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --monitor --outlier=off --probe-interval=%s --probe-retries=%d", vip4, endpoints4(), interval, fall)
	for _, ip := range []string{"31.31.31.1", "32.32.32.1", "17.17.17.1"} {
		r.eventuallyShows("get ep", ip+"_tcp_5001", " ok ")
	}
	address := join(vip4, 80)
	r.wantServers(address, "ep1", "ep2", "ep3")
	var kept net.Conn
	for kept == nil {
		c, who, err := r.greet(address)
		if err != nil {
			t.Fatal(err)
		}
		if who == "ep2" {
			kept = c
		}
	}

	servers[1].stop()
	start := time.Now()
	labtest.Eventually(t, patience, func(context.Context) error {
		for range 3 { // round robin: one of them would be refused
			c, _, err := r.greet(address)
			if err != nil {
				return err
			}
			_ = c.Close()
		}
		return nil
	})
	t.Logf("no new connection fails %s after the endpoint has ended", time.Since(start).Round(time.Millisecond))
	if d := time.Since(start); d > (fall+1)*interval+time.Second {
		t.Errorf("it took %s", d)
	}
	r.wantServers(address, "ep1", "ep3")
	if who, err := says(kept); err != nil || who != "ep2" {
		t.Errorf("the connection that it had is with %q, %v", who, err)
	}
	for line, words := range map[string][]string{
		"get ep":                          {"32.32.32.1_tcp_5001", " nok ", "refused"},
		"get ep -o wide":                  {"20.20.20.1:80/tcp", " nok: "},
		"get lb -o wide":                  {"32.32.32.1", " inactive "},
		"get events --kind=health":        {"endpoint 32.32.32.1:5001 is down: tcp 32.32.32.1:5001"},
		"describe lb " + vip4 + ":80/tcp": {"endpoint 32.32.32.1_tcp_5001 is nok: tcp 32.32.32.1:5001: connection refused"},
	} {
		r.eventuallyShows(line, words...)
	}
	if up := r.metric("endpoint_up", "endpoint=32.32.32.1:5001"); up != 0 {
		t.Errorf("loxilb_endpoint_up is %v", up)
	}

	servers[1].start()
	r.eventuallyShows("get ep", "32.32.32.1_tcp_5001", " ok ")
	labtest.Eventually(t, patience, func(context.Context) error {
		if _, who, err := r.greet(address); err != nil || who != "ep2" {
			return errors.Join(fmt.Errorf("%q answers", who), err)
		}
		return nil
	})
	r.wantServers(address, "ep1", "ep2", "ep3")

	// A daemon that is killed and starts again gives nobody to a dead endpoint meanwhile.
	servers[0].stop()
	r.eventuallyShows("get lb -o wide", "31.31.31.1", " inactive ")
	stop, result := make(chan struct{}), make(chan error)
	go func() {
		made := 0
		for {
			select {
			case <-stop:
				t.Logf("%d connections over the restart", made)
				result <- nil
				return
			default:
			}
			c, who, err := r.greet(address)
			if err != nil {
				result <- fmt.Errorf("connection %d (%q): %w", made, who, err)
				return
			}
			_ = c.Close()
			made++
		}
	}()
	r.Kill()
	r.restart()
	r.eventuallyShows("get ep", "31.31.31.1_tcp_5001", " nok ")
	close(stop)
	if err := <-result; err != nil {
		t.Error(err)
	}
	r.wantServers(address, "ep2", "ep3")
}

// TestMonitorInPlace: health is heeded or not, in place; with all endpoints down connections are refused, or go to all.
func TestMonitorInPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.mortals()
	create := func(more string) {
		t.Helper()
		r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s %s", vip4, endpoints4(), more)
	}
	address := join(vip4, 80)
	create("")
	r.wantServers(address, "ep1", "ep2", "ep3")
	if out := r.loxicmd("get lb -o wide"); strings.Contains(out, "active") {
		t.Errorf("nobody probes, and there are states: %s", out)
	}
	create("--monitor --probeport=9 --probe-interval=100ms") // where nobody listens
	r.eventuallyShows("get ep", "17.17.17.1_tcp_9", " nok ")
	r.eventuallyShows("get lb", " On ")
	labtest.Eventually(t, patience, func(context.Context) error {
		start := time.Now()
		switch _, _, err := r.greet(address); {
		case err == nil:
			return errors.New("there is an answer")
		case !strings.Contains(err.Error(), "refused"):
			return err
		case time.Since(start) > time.Second:
			return fmt.Errorf("refused after %s", time.Since(start))
		}
		return nil
	})
	create("--monitor --probeport=9 --probe-interval=100ms --all-down=panic")
	r.wantServers(address, "ep1", "ep2", "ep3")
	r.eventuallyShows("get lb -o wide", " panic ")
	create("--monitor --probeport=9 --probe-interval=100ms")
	r.eventuallyShows("get lb -o wide", " inactive ")
	create("")
	r.wantServers(address, "ep1", "ep2", "ep3")
	r.eventuallyShows("get lb", " Off ")
	if out := r.loxicmd("get ep"); strings.Contains(out, "_tcp_9") {
		t.Errorf("still probed: %s", out)
	}
}

// setHostState is an agent's word about what is probed at port 5001 of an address.
func (r *rig) setHostState(address, state string) {
	r.t.Helper()
	resp, err := r.LB.HTTPClient(patience).Post("http://127.0.0.1:11111/netlox/v1/config/endpointhoststate", "application/json",
		strings.NewReader(`{"hostName":"`+address+`","epPort":5001,"epProto":"tcp","state":"`+state+`"}`))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // of a test
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || strings.TrimSpace(string(body)) != `{"result":"Success"}` {
		r.t.Errorf("%s: %s %s, %v", state, resp.Status, body, err)
	}
}

// TestEndpointObject: an object takes the place of a service's probe, and an agent's word that of any.
func TestEndpointObject(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	servers := r.mortals()
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --monitor --probe-interval=200ms --probe-retries=1 --probe-rise=1", vip4, endpoints4())
	address := join(vip4, 80)
	servers[1].stop()
	r.eventuallyShows("get lb -o wide", "32.32.32.1", " inactive ")
	r.wantServers(address, "ep1", "ep3")

	r.loxicmd("create endpoint 32.32.32.1 --name=32.32.32.1_tcp_5001 --probetype=ping --period=1")
	r.eventuallyShows("get ep", "32.32.32.1_tcp_5001", "ping:", " ok ")
	r.eventuallyShows("get lb -o wide", "32.32.32.1", " active ")
	servers[1].start()
	r.wantServers(address, "ep1", "ep2", "ep3")

	state := func(state string) { r.setHostState("31.31.31.1", state) }
	state("red")
	r.eventuallyShows("get ep", "31.31.31.1_tcp_5001", " red ")
	r.eventuallyShows("get lb -o wide", "31.31.31.1", " inactive ")
	labtest.Eventually(t, patience, func(context.Context) error {
		for range 3 {
			if _, who, err := r.greet(address); err != nil || who == "ep1" {
				return errors.Join(fmt.Errorf("%q answers", who), err)
			}
		}
		return nil
	})
	r.wantServers(address, "ep2", "ep3")
	state("green")
	r.eventuallyShows("get ep", "31.31.31.1_tcp_5001", " ok ")
	r.eventuallyShows("get lb -o wide", "31.31.31.1", " active ")
	r.Kill() // objects are stored
	r.restart()
	r.eventuallyShows("get ep", "32.32.32.1_tcp_5001", "ping:", " ok ")
	r.loxicmd("delete endpoint 32.32.32.1 --name=32.32.32.1_tcp_5001")
	r.eventuallyShows("get ep", "32.32.32.1_tcp_5001", "tcp:", " ok ")
	if out, err := r.Command("delete", "endpoint", "32.32.32.1", "--name=32.32.32.1_tcp_5001"); err == nil || !strings.Contains(out, "endpoint 32.32.32.1_tcp_5001 does not exist") {
		t.Errorf("%s, %v", out, err)
	}
}

// TestHealthInModes: probes get through where endpoints see an address of the load balancer, beside connections from the same address;
// also over IPv6 and by HTTP.
func TestHealthInModes(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	servers := r.mortals()
	r.serveNamesAt(":5002")
	vips := map[string]string{"default": "20.20.20.1", "onearm": "20.20.20.2", "fullnat": "20.20.20.3"}
	for mode, vip := range vips {
		r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --mode=%s --monitor --probe-interval=100ms", vip, endpoints4(), mode)
	}
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --mode=onearm --monitor --probe-interval=100ms", vip6, endpoints6())
	r.loxicmd("create lb %s --tcp=81:5002 --endpoints=%s --probetype=http --probereq=health --proberesp=ep --probe-interval=100ms", vip4, endpoints4())
	for range 3 {
		for _, vip := range vips {
			r.wantServers(join(vip, 80), "ep1", "ep2", "ep3")
		}
		r.wantServers(join(vip6, 80), "ep1", "ep2", "ep3")
	}
	r.eventuallyShows("get ep", "31.31.31.1_http_5002", "http:/health", " ok ", "status 200")
	if out := r.loxicmd("get events --kind=health"); strings.Contains(out, " is down") {
		t.Errorf("endpoints were taken to be down: %s", out)
	}
	servers[2].stop()
	r.eventuallyShows("get ep", "17.17.17.1_tcp_5001", " nok ", "refused")
	r.eventuallyShows("get ep", "2001:db8:17::1_tcp_5001", " nok ", "refused")
	for _, vip := range []string{"20.20.20.1", "20.20.20.2", "20.20.20.3", vip6} {
		r.eventuallyShows("describe lb "+join(vip, 80)+"/tcp", " inactive ")
		r.wantServers(join(vip, 80), "ep1", "ep2")
	}
}

// serveNamesAt has every endpoint answer HTTP with its name.
func (r *rig) serveNamesAt(address string) {
	r.t.Helper()
	for _, h := range r.Endpoints {
		if err := h.ServeHTTP(address); err != nil {
			r.t.Fatal(err)
		}
	}
}

// TestApplyEndpoints: what get endpoint prints can be applied where nothing is left of it.
func TestApplyEndpoints(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.serveNames()
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --monitor", vip4, endpoints4())
	r.loxicmd("create endpoint 31.31.31.1 --name=named --probetype=http --probeport=5001 --probereq=/x --probe-statuses=200-204 --probe-interval=500ms")
	r.loxicmd("create endpoint 32.32.32.1 --probetype=ping")
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	before := r.loxicmd("get endpoint -o yaml")
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	r.loxicmd("apply -f %s", file) // all are there
	r.loxicmd("delete endpoint 31.31.31.1 --name=named --probetype=http --probeport=5001")
	r.loxicmd("delete endpoint 32.32.32.1 --probetype=ping")
	r.loxicmd("apply -f %s", file)
	out := r.loxicmd("get endpoint -o yaml")
	objects := strings.Count(out, "object: true")
	if objects != 2 || !strings.Contains(out, "name: named") || !strings.Contains(out, "probeReq: /x") || !strings.Contains(out, "probeInterval: 500ms") {
		t.Errorf("%d objects after it:\n%s\nbefore:\n%s", objects, out, before)
	}
}
