package health

import (
	"bufio"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"loxilb/internal/control/health/probe"
	"loxilb/internal/lb"
	"loxilb/test/await"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/faulty"
	"loxilb/test/netnstest/labtest"
)

var long = flag.Bool("long", false, "measure for half a minute each")

// TestServer is not a test: it is the server process of TestCost. It accepts connections until its
// input ends.
func TestServer(t *testing.T) {
	if os.Getenv("HEALTH_SERVER") == "" {
		t.Skip("only runs in the server process of TestCost")
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	bufio.NewReader(os.Stdin).ReadString('\n')
	l.Close()
}

// processCPU returns the CPU time of this process.
func processCPU(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// kernelCost returns the CPU time of the kernel's part of a probe: the first half of a handshake by
// a reused socket, with both sides on this machine, in batches of 250.
func kernelCost(t *testing.T, target func(i int) netip.Addr, port uint16) time.Duration {
	t.Helper()
	c, err := probe.NewConnector()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const rounds, row = 40, 250
	before := processCPU(t)
	for round := range rounds {
		time.Sleep(busyTick)
		for i := range row {
			spec := probe.Spec{To: netip.AddrPortFrom(target(round*row+i), port), Probe: lb.Probe{Timeout: time.Minute}}
			if _, err := c.Start(spec, func(probe.Answer, error) {}); err != nil {
				t.Fatal(err)
			}
		}
		for c.Running() > 0 {
			c.Collect()
		}
	}
	return (processCPU(t) - before) / (rounds * row)
}

// TestCost checks that 10,000 TCP targets, probed every 2 s, cost little more than the kernel's
// part. docs/health.md has the numbers.
func TestCost(t *testing.T) {
	if !*long {
		t.Skip("takes half a minute, and idle CPUs: make test-long")
	}
	server := exec.Command("/proc/self/exe", "-test.run=^TestServer$")
	server.Env = append(os.Environ(), "HEALTH_SERVER=1")
	in, _ := server.StdinPipe()
	out, _ := server.StdoutPipe()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); server.Wait() })
	var port uint16
	if _, err := fmt.Fscan(out, &port); err != nil {
		t.Fatal(err)
	}
	measureCost(t, nthAddress, port)
}

// TestOwnCost is TestCost without the endpoints' part: a program at the other end of a link only
// answers SYNs. The result is what probes cost the machine that sends them.
func TestOwnCost(t *testing.T) {
	if !*long {
		t.Skip("takes half a minute, and idle CPUs: make test-long")
	}
	if os.Getenv("HEALTH_COST") != "" {
		measureCost(t, func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}) }, 80)
		return
	}
	a, b := labtest.Pair(t)
	stop, err := faulty.Accept(b, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	labtest.Run(t, a, "ip", "route", "add", "10.9.0.0/16", "via", "10.1.0.2")
	p, err := a.Start(netnstest.Command{Args: []string{"/proc/self/exe", "-test.run=^TestOwnCost$", "-test.v", "-long"}, Env: []string{"HEALTH_COST=1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("%v", err)
	}
	t.Log(p.Output())
}

// measureCost probes 10,000 targets, and logs the CPU time.
func measureCost(t *testing.T, target func(i int) netip.Addr, port uint16) {
	t.Helper()
	kernel := kernelCost(t, target, port)
	m := start(t, Config{})
	const targets, rate = 10000, 5000
	for i := range targets {
		m.Set(fmt.Sprint(i), Target{Addr: target(i), Port: port, Probe: lb.Probe{Type: lb.ProbeTCP}})
	}
	probed := func(successes int) { // checks only the last target: reading all would cost CPU time
		t.Helper()
		await.NoError(t, time.Minute, func() error {
			if st, _ := m.Status(fmt.Sprint(targets - 1)); st.Successes < successes {
				return fmt.Errorf("the last target has %d successes, want %d", st.Successes, successes)
			}
			return nil
		})
	}
	probed(2)
	before, began := processCPU(t), time.Now()
	probed(12)
	share := float64(processCPU(t)-before) / float64(time.Since(began))
	whole := time.Duration(share / rate * float64(time.Second))
	t.Logf("%.1f %% of a CPU, %v for each probe, %v of it by a connector alone; %d goroutines", share*100, whole, kernel, runtime.NumGoroutine())
	failed := 0
	for i := range targets {
		if st, _ := m.Status(fmt.Sprint(i)); st.State != Up || st.Successes < 10 {
			if failed++; failed == 1 {
				t.Errorf("target %d: %+v", i, st)
			}
		}
	}
	if failed > 0 {
		t.Errorf("%d of %d targets were not up all the time", failed, targets)
	}
	if whole > 2*kernel {
		t.Errorf("%v for each probe, want less than twice the time of a connector alone", whole)
	}
}
