package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/control/health/probe"
	"loxilb/internal/lb"
	"loxilb/test/netnstest/labtest"
)

// openFiles returns the number of this process's open descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// inOwnProcess runs a test in a process of its own, for tests that count or limit descriptors or
// goroutines of the process.
func inOwnProcess(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	const mark = "HEALTH_ALONE"
	if os.Getenv(mark) != "" {
		f(t)
		return
	}
	t.Parallel()
	again := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), mark+"=1")
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// unansweringPort returns a port that answers no SYN on any address of 127.0.0.0/8, as the backlog
// of its listener is full.
func unansweringPort(t *testing.T) uint16 {
	t.Helper()
	open := func() int {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	l := open()
	if err := errors.Join(unix.Bind(l, &unix.SockaddrInet4{}), unix.Listen(l, 0)); err != nil {
		t.Fatal(err)
	}
	where, err := unix.Getsockname(l)
	if err != nil {
		t.Fatal(err)
	}
	port := where.(*unix.SockaddrInet4).Port
	for range 3 {
		if err := unix.Connect(open(), &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			t.Fatalf("got %v, want no error or unix.EINPROGRESS", err)
		}
	}
	return uint16(port)
}

// nthAddress returns a different loopback address for each number.
func nthAddress(i int) netip.Addr { return netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}) }

// leaksNothing runs a monitor during f, and checks that it then leaves no descriptor and no
// goroutine.
func leaksNothing(t *testing.T, c Config, f func(m *Monitor)) {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	before, goroutines := openFiles(t), runtime.NumGoroutine()
	m := New(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	f(m)
	cancel()
	<-done
	labtest.Eventually(t, patience, func(context.Context) error {
		if n := openFiles(t); n > before {
			return fmt.Errorf("%d descriptors, %d before", n, before)
		}
		if n := runtime.NumGoroutine(); n > goroutines {
			return fmt.Errorf("%d goroutines, %d before", n, goroutines)
		}
		return nil
	})
}

// TestManyDead checks that 10,000 targets that never answer are down, that a target that answers is
// up meanwhile, and that the monitor uses few goroutines and leaves none.
func TestManyDead(t *testing.T) {
	inOwnProcess(t, func(t *testing.T) {
		const targets = 10000
		port, open := unansweringPort(t), listen(t, "127.0.0.1:0")
		openFiles(t) // the runtime's own descriptors are open now
		leaksNothing(t, Config{}, func(m *Monitor) {
			p := lb.Probe{Type: lb.ProbeTCP, Interval: 2 * time.Second}
			for i := range targets {
				m.Set(fmt.Sprint(i), Target{Addr: nthAddress(i), Port: port, Probe: p})
			}
			m.Set("open", at(open, lb.Probe{Type: lb.ProbeTCP, Interval: 100 * time.Millisecond, Timeout: 50 * time.Millisecond, Fall: 1}))
			for i := range targets {
				waitState(t, m, fmt.Sprint(i), Down)
				if n := runtime.NumGoroutine(); n > 20 {
					t.Fatalf("%d goroutines", n)
				}
			}
			labtest.Eventually(t, patience, func(context.Context) error {
				if s, _ := m.Status("open"); s.State != Up || len(s.History) != 1 || s.Successes < 10 {
					return fmt.Errorf("the target that answers: %+v", s)
				}
				return nil
			})
			if n := openFiles(t); n < targets/2 || n > targets+100 {
				t.Errorf("%d descriptors for %d targets that do not answer", n, targets)
			}
		})
	})
}

// TestStopped checks that a process that was stopped (SIGSTOP) for a second reports no target as
// down when it continues.
func TestStopped(t *testing.T) {
	inOwnProcess(t, func(t *testing.T) {
		m := start(t, Config{})
		open := listen(t, "127.0.0.1:0")
		const targets = 200
		for i := range targets {
			m.Set(fmt.Sprint(i),
				Target{Addr: open.Addr(), Port: open.Port(), Probe: lb.Probe{Type: lb.ProbeTCP, Interval: 200 * time.Millisecond, Timeout: 100 * time.Millisecond, Fall: 1}})
		}
		for i := range targets {
			waitState(t, m, fmt.Sprint(i), Up)
		}
		wake := exec.Command("sh", "-c", fmt.Sprintf("sleep 1; kill -CONT %d", os.Getpid()))
		if err := wake.Start(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := unix.Kill(os.Getpid(), unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if err := wake.Wait(); err != nil || time.Since(began) < time.Second/2 {
			t.Fatalf("the process was not stopped: %v", err)
		}
		for i := range targets {
			labtest.Eventually(t, patience, func(context.Context) error {
				s, _ := m.Status(fmt.Sprint(i))
				if s.Checked.Sub(began) < time.Second {
					return fmt.Errorf("target %d is not probed: %+v", i, s)
				}
				if len(s.History) != 1 {
					t.Fatalf("target %d: %+v", i, s)
				}
				return nil
			})
		}
	})
}

// TestStalled checks that the failure of a probe during which this process was suspended does not
// count: it has not read the answer.
func TestStalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stalls := make(chan time.Duration, 1)
		m := start(t, Config{Prober: scripted(func(context.Context, probe.Spec) (probe.Answer, error) {
			select {
			case d := <-stalls:
				time.Sleep(d)
				return probe.Answer{}, errBad
			default:
				return probe.Answer{What: "good"}, nil
			}
		}).prober})
		p := probeEverySecond(1, 1)
		m.Set("a", at(one, p))
		for d, failed := range map[time.Duration]uint64{p.Timeout: 1, p.Timeout + 2*stallTime: 0, time.Minute: 0} {
			before, _ := m.Status("a")
			stalls <- d
			time.Sleep(2 * time.Minute)
			if after, _ := m.Status("a"); after.Failed-before.Failed != failed || after.Downs-before.Downs != failed {
				t.Errorf("a probe fails after %v: got %+v after %+v, want %d failures", d, after, before, failed)
			}
		}
	})
}

// TestFewDescriptors checks that all states are right although the limit of open files is too low,
// and that the shortage is logged once.
func TestFewDescriptors(t *testing.T) {
	inOwnProcess(t, func(t *testing.T) {
		var out output
		port, open := unansweringPort(t), listen(t, "127.0.0.1:0")
		limit := unix.Rlimit{Cur: 100, Max: 100}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		// The monitor assumes more descriptors than there are, as if other parts of the
		// process used the rest.
		leaksNothing(t, Config{Descriptors: 1000, Log: slog.New(slog.NewTextHandler(&out, nil))}, func(m *Monitor) {
			p := lb.Probe{Type: lb.ProbeTCP, Interval: 500 * time.Millisecond, Timeout: 200 * time.Millisecond, Fall: 1}
			for i := range 300 {
				m.Set(fmt.Sprint(i), Target{Addr: nthAddress(i), Port: port, Probe: p})
			}
			p.Request, p.Response = "x", "y"
			for i := range 100 {
				m.Set(fmt.Sprint("request", i), Target{Addr: nthAddress(i), Port: port, Probe: p})
			}
			p.Request, p.Response = "", ""
			m.Set("open", at(open, p))
			for i := range 300 {
				waitState(t, m, fmt.Sprint(i), Down)
			}
			if s := waitState(t, m, "open", Up); len(s.History) != 1 {
				t.Errorf("the target that answers: %+v", s)
			}
			for i := range 300 {
				m.Remove(fmt.Sprint(i))
			}
			for i := range 100 {
				m.Remove(fmt.Sprint("request", i))
			}
			labtest.Eventually(t, shortageEnd+patience, func(context.Context) error {
				if n := strings.Count(out.String(), "\n"); n != 2 {
					return fmt.Errorf("%d lines, want 2:\n%s", n, &out)
				}
				return nil
			})
		})
	})
}

// TestLeavesNothing checks that probes of all types, of endpoints that answer, are silent or refuse
// connections, leave no descriptor and no goroutine.
func TestLeavesNothing(t *testing.T) {
	inOwnProcess(t, func(t *testing.T) {
		open := listen(t, "127.0.0.1:0") // accepts, and never sends
		l, err := net.Listen("tcp", "[::1]:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
				c.Close()
			}
		}()
		answers := l.Addr().(*net.TCPAddr).AddrPort()
		leaksNothing(t, Config{}, func(m *Monitor) {
			for kind := lb.ProbePing; kind <= lb.ProbeDNS; kind++ {
				for i, to := range []netip.AddrPort{open, answers, netip.AddrPortFrom(open.Addr(), 1)} {
					p := lb.Probe{Type: kind, Request: "x", Interval: 100 * time.Millisecond, Fall: 1, Rise: 1}
					m.Set(fmt.Sprintf("%v %d", kind, i), at(to, p))
					p.Request = ""
					m.Set(fmt.Sprintf("%v %d quiet", kind, i), at(to, p))
				}
			}
			for key, want := range map[string]State{"ping 0": Up, "tcp 1": Up, "http 1": Up, "https 1": Down, "http 0": Down, "grpc 0": Down, "dns 0": Down, "udp 2": Down} {
				waitState(t, m, key, want)
			}
		})
		l.Close()
	})
}

// TestStorm checks that targets that are added, changed and removed concurrently end in the
// expected state.
func TestStorm(t *testing.T) {
	inOwnProcess(t, func(t *testing.T) {
		open := listen(t, "127.0.0.1:0")
		refused := netip.AddrPortFrom(open.Addr(), 1)
		slow := netip.AddrPortFrom(open.Addr(), unansweringPort(t))
		var m *Monitor
		leaksNothing(t, Config{Changed: func(key string) { m.Status(key) }}, func(running *Monitor) {
			m = running
			var all sync.WaitGroup
			end := time.Now().Add(3 * time.Second)
			for side := range 8 {
				all.Go(func() {
					for i := 0; time.Now().Before(end); i++ {
						key := fmt.Sprint(i % 50)
						p := lb.Probe{Type: lb.ProbeTCP, Interval: 100 * time.Millisecond, Fall: 1 + i%3}
						if i%7 == 0 {
							p.Type = lb.ProbeHTTP
						}
						switch (i + side) % 6 {
						case 0:
							m.Set(key, at(open, p))
						case 1:
							m.Set(key, at(refused, p))
						case 2:
							m.Set(key, at(slow, p))
						case 3:
							m.Remove(key)
						case 4:
							m.Override(key, State(i%3), "a storm")
						case 5:
							m.Status(key)
						}
					}
				})
			}
			all.Wait()
			for i := range 50 {
				key, to, want := fmt.Sprint(i), open, Up
				if i%2 == 0 {
					to, want = refused, Down
				}
				m.Override(key, Unknown, "")
				m.Set(key, at(to, lb.Probe{Type: lb.ProbeTCP, Interval: 100 * time.Millisecond}))
				s := waitState(t, m, key, want)
				if !strings.HasPrefix(s.Evidence, "tcp "+to.String()+": ") {
					t.Errorf("%s, want evidence of %v", s.Evidence, to)
				}
			}
		})
	})
}
