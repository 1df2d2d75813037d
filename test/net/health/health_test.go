package health_test

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

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// restartableServer is a server that can be stopped and started again. Accepted connections
// continue.
type restartableServer struct {
	t        testing.TB
	host     *netnstest.Host
	address  string
	handle   func(net.Conn)
	listener net.Listener
}

func (s *restartableServer) start() {
	s.t.Helper()
	l := rebind(s.t, s.host, s.address)
	s.listener = l
	s.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.handle(c)
		}
	}()
}

func (s *restartableServer) stop() {
	s.t.Helper()
	if err := s.listener.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// rebind listens on a TCP address that another listener has just closed. It retries while the
// address is in use: a process that another test forks inherits the descriptor until it calls exec.
func rebind(t testing.TB, h *netnstest.Host, address string) (l net.Listener) {
	t.Helper()
	labtest.Eventually(t, rig.Patience, func(context.Context) (err error) {
		l, err = h.Listen("tcp", address)
		return err
	})
	return l
}

// startServers starts a server on every endpoint. It answers each line with its name and the line.
func startServers(r *rig.Rig) []*restartableServer {
	list := make([]*restartableServer, len(r.Endpoints))
	for i, h := range r.Endpoints {
		list[i] = &restartableServer{t: r.T, host: h, address: ":5001", handle: func(c net.Conn) {
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

// dialServer opens a connection, and returns it with the name of the server that answers.
func dialServer(r *rig.Rig, address string) (net.Conn, string, error) {
	ctx, cancel := context.WithTimeout(r.T.Context(), 2*time.Second)
	defer cancel()
	c, err := r.Client.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, "", err
	}
	r.Lab.Cleanup(func() { _ = c.Close() })
	who, err := askServer(c)
	return c, who, err
}

// askServer asks the server of a connection for its name.
func askServer(c net.Conn) (string, error) {
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

// wantServers opens connections, and checks that none fails, and that exactly these servers answer.
func wantServers(r *rig.Rig, address string, want ...string) {
	r.T.Helper()
	seen := map[string]bool{}
	for range 30 {
		c, who, err := dialServer(r, address)
		if err != nil {
			r.T.Fatalf("%s: %v", address, err)
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
		r.T.Errorf("%s: %v get connections, want %v", address, got, want)
	}
}

// TestNewService checks that a service answers soon after the start of its servers, although its
// first probes have failed.
func TestNewService(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	servers := startServers(r)
	for _, s := range servers {
		s.stop()
	}
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --mode=onearm", rig.VIP4, rig.Endpoints4())
	r.EventuallyShows("get ep", "31.31.31.1_tcp_5001", " down ")
	for _, s := range servers {
		s.start()
	}
	begun := time.Now()
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		c, _, err := dialServer(r, rig.Join(rig.VIP4, 80))
		if err == nil {
			_ = c.Close()
		}
		return err
	})
	took := time.Since(begun)
	t.Logf("the service answers after %s", took.Round(time.Millisecond))
	if took > 1500*time.Millisecond {
		t.Errorf("the service answers %s after the start of its servers", took)
	}
}

// TestHealth checks that a failed endpoint gets no new connection after interval x fall, keeps its
// existing ones, and gets new ones when it answers again. No connection fails after that interval.
func TestHealth(t *testing.T) {
	t.Parallel()
	const interval, fall = 200 * time.Millisecond, 2
	r := rig.New(t, rig.Options{})
	servers := startServers(r)
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --monitor --outlier=off --probe-interval=%s --probe-retries=%d", rig.VIP4, rig.Endpoints4(), interval, fall)
	for _, ip := range []string{"31.31.31.1", "32.32.32.1", "17.17.17.1"} {
		r.EventuallyShows("get ep", ip+"_tcp_5001", " up ")
	}
	address := rig.Join(rig.VIP4, 80)
	wantServers(r, address, "ep1", "ep2", "ep3")
	var kept net.Conn
	for kept == nil {
		c, who, err := dialServer(r, address)
		if err != nil {
			t.Fatal(err)
		}
		if who == "ep2" {
			kept = c
		}
	}

	servers[1].stop()
	start := time.Now()
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		for range 3 { // round robin: the failed endpoint would refuse one of three
			c, _, err := dialServer(r, address)
			if err != nil {
				return err
			}
			_ = c.Close()
		}
		return nil
	})
	t.Logf("no new connection fails %s after the endpoint has ended", time.Since(start).Round(time.Millisecond))
	if d := time.Since(start); d > (fall+1)*interval+time.Second {
		t.Errorf("the change of state took %s", d)
	}
	wantServers(r, address, "ep1", "ep3")
	if who, err := askServer(kept); err != nil || who != "ep2" {
		t.Errorf("%q answers over the existing connection, want ep2: %v", who, err)
	}
	for line, words := range map[string][]string{
		"get ep":                              {"32.32.32.1_tcp_5001", " down ", "refused"},
		"get ep -o wide":                      {"20.20.20.1:80/tcp", " down: "},
		"get lb -o wide":                      {"32.32.32.1", " down "},
		"get events --kind=health":            {"endpoint 32.32.32.1:5001 is down: tcp 32.32.32.1:5001"},
		"describe lb " + rig.VIP4 + ":80/tcp": {"endpoint 32.32.32.1:5001 is down: ", "connection refused"},
	} {
		r.EventuallyShows(line, words...)
	}
	if up := r.Metric("endpoint_up", "endpoint=32.32.32.1:5001"); up != 0 {
		t.Errorf("loxilb_endpoint_up is %v", up)
	}

	servers[1].start()
	r.EventuallyShows("get ep", "32.32.32.1_tcp_5001", " up ")
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if _, who, err := dialServer(r, address); err != nil || who != "ep2" {
			return errors.Join(fmt.Errorf("%q answers", who), err)
		}
		return nil
	})
	wantServers(r, address, "ep1", "ep2", "ep3")

	// No connection goes to a failed endpoint while the daemon is killed and restarted.
	servers[0].stop()
	r.EventuallyShows("get lb -o wide", "31.31.31.1", " down ")
	stop, result := make(chan struct{}), make(chan error)
	go func() {
		opened := 0
		for {
			select {
			case <-stop:
				t.Logf("%d connections during the restart", opened)
				result <- nil
				return
			default:
			}
			c, who, err := dialServer(r, address)
			if err != nil {
				result <- fmt.Errorf("connection %d (%q): %w", opened, who, err)
				return
			}
			_ = c.Close()
			opened++
		}
	}()
	r.Kill()
	r.Restart()
	r.EventuallyShows("get ep", "31.31.31.1_tcp_5001", " down ")
	close(stop)
	if err := <-result; err != nil {
		t.Error(err)
	}
	wantServers(r, address, "ep2", "ep3")
}

// TestMonitorInPlace enables and disables the probes of an existing service. While all endpoints
// are down, connections are refused, or go to all endpoints with --all-down=panic.
func TestMonitorInPlace(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	startServers(r)
	create := func(more string) {
		t.Helper()
		r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s %s", rig.VIP4, rig.Endpoints4(), more)
	}
	address := rig.Join(rig.VIP4, 80)
	create("")
	wantServers(r, address, "ep1", "ep2", "ep3")
	if out := r.Loxicmd("get lb -o wide"); strings.Contains(out, "active") {
		t.Errorf("endpoints have states although none is probed: %s", out)
	}
	create("--monitor --probeport=9 --probe-interval=100ms") // a closed port
	r.EventuallyShows("get ep", "17.17.17.1_tcp_9", " down ")
	r.EventuallyShows("get lb", " On ")
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		start := time.Now()
		switch _, _, err := dialServer(r, address); {
		case err == nil:
			return errors.New("a server answers")
		case !strings.Contains(err.Error(), "refused"):
			return err
		case time.Since(start) > time.Second:
			return fmt.Errorf("refused after %s", time.Since(start))
		}
		return nil
	})
	create("--monitor --probeport=9 --probe-interval=100ms --all-down=panic")
	wantServers(r, address, "ep1", "ep2", "ep3")
	r.EventuallyShows("get lb -o wide", " panic ")
	create("--monitor --probeport=9 --probe-interval=100ms")
	r.EventuallyShows("get lb -o wide", " down ")
	create("")
	wantServers(r, address, "ep1", "ep2", "ep3")
	r.EventuallyShows("get lb", " Off ")
	if out := r.Loxicmd("get ep"); strings.Contains(out, "_tcp_9") {
		t.Errorf("endpoints are still probed: %s", out)
	}
}

// setHostState sets the state of an address's endpoints at port 5001, as an agent does.
func setHostState(r *rig.Rig, address, state string) {
	r.T.Helper()
	resp, err := r.LB.HTTPClient(rig.Patience).Post("http://127.0.0.1:11111/netlox/v1/config/endpointhoststate", "application/json",
		strings.NewReader(`{"hostName":"`+address+`","epPort":5001,"epProto":"tcp","state":"`+state+`"}`))
	if err != nil {
		r.T.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // of a test
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || strings.TrimSpace(string(body)) != `{"result":"Success"}` {
		r.T.Errorf("%s: got %s %s, %v, want no error, code 200, body == `{\"result\":\"Success\"}`",
			state, resp.Status, body, err)
	}
}

// TestEndpointObject checks that an endpoint object replaces a service's probe, and that the report
// of an agent overrides any probe.
func TestEndpointObject(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	servers := startServers(r)
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --monitor --probe-interval=200ms --probe-retries=1 --probe-rise=1", rig.VIP4, rig.Endpoints4())
	address := rig.Join(rig.VIP4, 80)
	servers[1].stop()
	r.EventuallyShows("get lb -o wide", "32.32.32.1", " down ")
	wantServers(r, address, "ep1", "ep3")

	r.Loxicmd("create endpoint 32.32.32.1 --name=32.32.32.1_tcp_5001 --probetype=ping --period=1")
	r.EventuallyShows("get ep", "32.32.32.1_tcp_5001", "ping:", " up ")
	r.EventuallyShows("get lb -o wide", "32.32.32.1", " up ")
	servers[1].start()
	wantServers(r, address, "ep1", "ep2", "ep3")

	state := func(state string) { setHostState(r, "31.31.31.1", state) }
	state("red")
	r.EventuallyShows("get ep", "31.31.31.1_tcp_5001", " down ", "an agent reports it down")
	r.EventuallyShows("get lb -o wide", "31.31.31.1", " down ")
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		for range 3 {
			if _, who, err := dialServer(r, address); err != nil || who == "ep1" {
				return errors.Join(fmt.Errorf("%q answers", who), err)
			}
		}
		return nil
	})
	wantServers(r, address, "ep2", "ep3")
	state("green")
	r.EventuallyShows("get ep", "31.31.31.1_tcp_5001", " up ")
	r.EventuallyShows("get lb -o wide", "31.31.31.1", " up ")
	r.Kill() // a restart keeps objects
	r.Restart()
	r.EventuallyShows("get ep", "32.32.32.1_tcp_5001", "ping:", " up ")
	r.Loxicmd("delete endpoint 32.32.32.1 --name=32.32.32.1_tcp_5001")
	r.EventuallyShows("get ep", "32.32.32.1_tcp_5001", "tcp:", " up ")
	r.Loxicmd("delete endpoint 32.32.32.1 --name=32.32.32.1_tcp_5001") // deleting a missing object succeeds
}

// TestHealthInModes checks that probes succeed in modes in which endpoints see an address of the
// load balancer as the source of clients' connections, too. These modes probe by default.
func TestHealthInModes(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	servers := startServers(r)
	serveNamesAt(r, ":5002")
	vips := map[string]string{"default": "20.20.20.1", "onearm": "20.20.20.2", "fullnat": "20.20.20.3"}
	for mode, vip := range vips {
		monitor := ""
		if mode == "default" {
			monitor = " --monitor"
		}
		r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --mode=%s --outlier=off --probe-interval=100ms%s", vip, rig.Endpoints4(), mode, monitor)
	}
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --mode=onearm --outlier=off --probe-interval=100ms", rig.VIP6, rig.Endpoints6())
	r.Loxicmd("create lb %s --tcp=81:5002 --endpoints=%s --probetype=http --probereq=health --proberesp=ep --probe-interval=100ms", rig.VIP4, rig.Endpoints4())
	for range 3 {
		for _, vip := range vips {
			wantServers(r, rig.Join(vip, 80), "ep1", "ep2", "ep3")
		}
		wantServers(r, rig.Join(rig.VIP6, 80), "ep1", "ep2", "ep3")
	}
	r.EventuallyShows("get ep", "31.31.31.1_http_5002", "http:/health", " up ", "status 200")
	if out := r.Loxicmd("get events --kind=health"); strings.Contains(out, " is down") {
		t.Errorf("endpoints count as down: %s", out)
	}
	servers[2].stop()
	r.EventuallyShows("get ep", "17.17.17.1_tcp_5001", " down ", "refused")
	r.EventuallyShows("get ep", "2001:db8:17::1_tcp_5001", " down ", "refused")
	for _, vip := range []string{"20.20.20.1", "20.20.20.2", "20.20.20.3", rig.VIP6} {
		r.EventuallyShows("describe lb "+rig.Join(vip, 80)+"/tcp", " down ")
		wantServers(r, rig.Join(vip, 80), "ep1", "ep2")
	}
}

// serveNamesAt starts an HTTP server on every endpoint that answers with the host's name.
func serveNamesAt(r *rig.Rig, address string) {
	r.T.Helper()
	for _, h := range r.Endpoints {
		if err := h.ServeHTTP(address); err != nil {
			r.T.Fatal(err)
		}
	}
}

// TestApplyEndpoints checks that apply accepts the output of get endpoint, and creates deleted
// endpoint objects again.
func TestApplyEndpoints(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --monitor", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create endpoint 31.31.31.1 --name=named --probetype=http --probeport=5001 --probereq=/x --probe-statuses=200-204 --probe-interval=500ms")
	r.Loxicmd("create endpoint 32.32.32.1 --probetype=ping")
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	before := r.Loxicmd("get endpoint -o yaml")
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Loxicmd("apply -f %s", file) // changes nothing
	r.Loxicmd("delete endpoint 31.31.31.1 --name=named --probetype=http --probeport=5001")
	r.Loxicmd("delete endpoint 32.32.32.1 --probetype=ping")
	r.Loxicmd("apply -f %s", file)
	out := r.Loxicmd("get endpoint -o yaml")
	objects := strings.Count(out, "object: true")
	if objects != 2 || !strings.Contains(out, "name: named") || !strings.Contains(out, "probeReq: /x") || !strings.Contains(out, "probeInterval: 500ms") {
		t.Errorf("%d objects after apply:\n%s\nbefore:\n%s", objects, out, before)
	}
}
