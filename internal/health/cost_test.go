package health

import (
	"bufio"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"loxilb/internal/lb"
)

var long = flag.Bool("long", false, "measure for half a minute each")

// TestServer is no test: it is the other process of those that measure, which listens until its input ends.
func TestServer(t *testing.T) {
	if os.Getenv("HEALTH_SERVER") == "" {
		t.Skip("serves others")
	}
	fmt.Println(listen(t, "0.0.0.0:0").Port())
	bufio.NewReader(os.Stdin).ReadString('\n')
}

// used is the CPU time of this process.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestCost: 10,000 TCP targets, probed every 2 s, cost less than a tenth of a CPU.
func TestCost(t *testing.T) {
	if !*long {
		t.Skip("takes half a minute, and CPUs that nobody else needs: make test-long")
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
	m := start(t, Config{})
	const targets = 10000
	for i := range targets {
		a := netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)})
		m.Set(fmt.Sprint(i), Target{Addr: a, Port: port, Probe: lb.Probe{Type: lb.ProbeTCP}})
	}
	time.Sleep(5 * time.Second)
	before, began := used(t), time.Now()
	time.Sleep(20 * time.Second)
	share := float64(used(t)-before) / float64(time.Since(began))
	t.Logf("%.1f %% of a CPU, %d goroutines", share*100, runtime.NumGoroutine())
	for i := range targets {
		if st, _ := m.Status(fmt.Sprint(i)); st.State != Up || st.Successes < 10 {
			t.Fatalf("target %d: %+v", i, st)
		}
	}
	if share > 0.1 {
		t.Errorf("%.1f %% of a CPU, want less than 10 %%", share*100)
	}
}
