package connections_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// holdArg as the first argument makes this program a helper process.
const holdArg = "hold-connections"

// TestHold holds 6,000 connections open, 30,000 with -long, and checks that each of them still
// carries a byte in both directions after a restart of the daemon. A process can have 20,000 open
// files here, so each endpoint is a process, and there are two client processes.
//
// P3
func TestHold(t *testing.T) {
	const clients = 2
	each := 3_000
	if rig.IsLong() {
		each = 15_000
	}
	r := rig.New(t, rig.Options{Before: func(t testing.TB, s *netnstest.Standard) {
		if err := s.Client.Sysctl("net/ipv4/ip_local_port_range", "10000 65000"); err != nil {
			t.Fatal(err)
		}
	}})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range r.Endpoints {
		p, err := h.Start(netnstest.Command{Args: []string{self, holdArg, "serve", ":5001"}})
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, p, "listening", rig.Patience)
	}
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())

	holders := make([]*netnstest.Process, clients)
	for i := range holders {
		holders[i], err = r.Client.Start(netnstest.Command{
			Args: []string{self, holdArg, "dial", rig.Join(rig.VIP4, 80), strconv.Itoa(each), r.Dir() + "/go"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	for _, p := range holders {
		waitFor(t, p, "holding", 2*time.Minute)
	}
	t.Logf("%d connections after %v", clients*each, time.Since(start).Round(time.Millisecond))
	if got := r.Metric("service_connections_active", "service=20.20.20.1:80/tcp"); got != float64(clients*each) {
		t.Errorf("%v connections are active, want %d", got, clients*each)
	}
	for _, e := range []string{"31.31.31.1", "32.32.32.1", "17.17.17.1"} {
		got := r.Metric("endpoint_connections_active", "endpoint="+e+":5001")
		if got != float64(clients*each/3) {
			t.Errorf("%v connections are active at %s, want %d", got, e, clients*each/3)
		}
	}
	r.Kill()
	r.Restart()
	if err := os.WriteFile(r.Dir()+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range holders {
		waitFor(t, p, "alive "+strconv.Itoa(each), time.Minute)
	}
}

// waitFor waits until a process has printed a line with this prefix.
func waitFor(t testing.TB, p *netnstest.Process, line string, patience time.Duration) {
	t.Helper()
	labtest.Eventually(t, patience, func(context.Context) error {
		if strings.Contains("\n"+p.Output(), "\n"+line) {
			return nil // even if the process has ended meanwhile
		}
		return fmt.Errorf("the process has printed %q so far", p.Output())
	})
}

// holdMain is the main function of the helper process: an echo server, or a client that holds many
// connections.
func holdMain(args []string) int {
	var err error
	switch {
	case len(args) == 2 && args[0] == "serve":
		err = holdServe(args[1])
	case len(args) == 3 && args[0] == "try":
		var n int
		if n, err = strconv.Atoi(args[2]); err == nil {
			holdAndReport(args[1], n)
		}
	case len(args) == 4 && args[0] == "dial":
		var n int
		if n, err = strconv.Atoi(args[2]); err == nil {
			err = holdDial(args[1], n, args[3])
		}
	default:
		err = fmt.Errorf("unknown arguments %q", args)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func holdServe(address string) error {
	// Several processes listen: one cannot have enough open files for all connections.
	reuse := func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		}), err)
	}
	l, err := (&net.ListenConfig{Control: reuse}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(struct{ io.Writer }{c}, bufio.NewReaderSize(c, 16))
		}()
	}
}

// holdDial opens n connections, waits for a file to appear, and exchanges a byte over each.
func holdDial(address string, n int, goFile string) error {
	connections, err := dialMany(address, n)
	if err != nil {
		return err
	}
	fmt.Println("holding", n)
	for {
		if _, err := os.Stat(goFile); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	alive := 0
	for _, c := range connections {
		if err = rig.Exchange(c, "x"); err == nil {
			alive++
		}
	}
	fmt.Println("alive", alive, err)
	_, err = io.Copy(io.Discard, os.Stdin) // keep the connections until this process is killed
	return err
}

// holdAndReport opens n connections and prints how many succeeded, how many were refused, and how
// long the slowest refusal took. It then exchanges a byte over each, and holds them until it is
// killed.
func holdAndReport(address string, n int) {
	const workers = 32
	var mu sync.Mutex
	var held []net.Conn
	refused, slowest := 0, time.Duration(0)
	var other error
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				start := time.Now()
				c, err := net.DialTimeout("tcp", address, 10*time.Second)
				mu.Lock()
				switch {
				case err == nil:
					held = append(held, c)
				case errors.Is(err, unix.ECONNREFUSED):
					refused++
					slowest = max(slowest, time.Since(start))
				default:
					other = err
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	fmt.Println("tried", len(held), refused, slowest.Milliseconds(), other)
	alive := 0
	for _, c := range held {
		if err := rig.Exchange(c, "x"); err == nil {
			alive++
		}
	}
	fmt.Println("alive", alive)
	select {} // until this process is killed
}

func dialMany(address string, n int) ([]net.Conn, error) {
	const workers = 32
	connections := make([]net.Conn, n)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				connections[i], errs[w] = net.DialTimeout("tcp", address, 10*time.Second)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return connections, nil
}
