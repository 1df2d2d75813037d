package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loxilb/internal/control/health/probe"
	"loxilb/internal/lb"
	"loxilb/test/netnstest/labtest"
)

func TestMain(m *testing.M) { os.Exit(labtest.OwnNetwork(m)) }

const patience = 20 * time.Second

// notifications counts notifications of changes.
type notifications struct{ n atomic.Int32 }

func (c *notifications) changed(string) { c.n.Add(1) }

func (c *notifications) count() int { return int(c.n.Load()) }

// output is the output of a log. It can be read while it is written.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// start runs a monitor until the test ends.
func start(t *testing.T, c Config) *Monitor {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	m := New(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return m
}

// waitState waits for a state, and returns its status.
func waitState(t *testing.T, m *Monitor, key string, want State) (s Status) {
	t.Helper()
	labtest.Eventually(t, patience, func(context.Context) error {
		var ok bool
		if s, ok = m.Status(key); !ok || s.State != want {
			return fmt.Errorf("%s is %v (%s), want %v", key, s.State, s.Evidence, want)
		}
		return nil
	})
	return s
}

// listen opens a TCP socket whose connections the kernel accepts.
func listen(t *testing.T, address string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func at(a netip.AddrPort, p lb.Probe) Target { return Target{Addr: a.Addr(), Port: a.Port(), Probe: p} }

var errBad = errors.New("bad")

// scripted is a function of a test that answers probes.
type scripted func(context.Context, probe.Spec) (probe.Answer, error)

type scriptedProber struct {
	answer scripted
	spec   probe.Spec
}

func (p scriptedProber) Probe(ctx context.Context) (probe.Answer, error) {
	return p.answer(ctx, p.spec)
}

func (s scripted) prober(spec probe.Spec) probe.Prober { return scriptedProber{s, spec} }
