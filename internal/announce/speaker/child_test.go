package speaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb/bgp"
	"loxilb/test/await"
	"loxilb/test/netnstest"
)

// childSocket is set in the environment of a process that runs a speaker in a network of its own:
// the socket at which it serves Remote. Sockets of gobgp open on any thread, so a test cannot run
// a speaker in another namespace itself.
const childSocket = "SPEAKER_TEST_SOCKET"

func TestMain(m *testing.M) {
	if path := os.Getenv(childSocket); path != "" {
		serveChild(path)
	}
	os.Exit(m.Run())
}

func serveChild(path string) {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelInfo}))
	server := rpc.NewServer()
	l, err := net.Listen("unix", path)
	if err == nil {
		err = server.RegisterName("Speaker", &Remote{New(log)})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server.Accept(l)
}

// Remote is a speaker as net/rpc offers it.
type Remote struct{ s *Speaker }

// Policies are the arguments of SetPolicies.
type Policies struct {
	Sets     []bgp.DefinedSet
	Policies []bgp.Policy
	Apps     []bgp.Application
}

func (r *Remote) Start(g bgp.Speaker, _ *struct{}) error { return r.s.Start(context.Background(), g) }

func (r *Remote) Stop(reason string, _ *struct{}) error {
	return r.s.Stop(context.Background(), reason)
}

func (r *Remote) SetNeighbor(n bgp.Neighbor, _ *struct{}) error {
	return r.s.SetNeighbor(context.Background(), n)
}

func (r *Remote) DeleteNeighbor(key string, _ *struct{}) error {
	return r.s.DeleteNeighbor(context.Background(), key)
}

func (r *Remote) SetRoutes(routes []bgp.Route, _ *struct{}) error {
	return r.s.SetRoutes(context.Background(), routes)
}

func (r *Remote) SetPolicies(p Policies, _ *struct{}) error {
	return r.s.SetPolicies(context.Background(), p.Sets, p.Policies, p.Apps)
}

func (r *Remote) Sessions(_ struct{}, sessions *[]Session) error {
	*sessions = r.s.Sessions()
	return nil
}

// Usage is what a speaker's process uses.
type Usage struct {
	Goroutines int
	Heap       uint64
}

func (r *Remote) Usage(_ struct{}, u *Usage) error {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	*u = Usage{Goroutines: runtime.NumGoroutine(), Heap: m.HeapAlloc}
	return nil
}

// child is a speaker in a host.
type child struct {
	t       testing.TB
	process *netnstest.Process
	client  *rpc.Client
}

func startChild(t testing.TB, h *netnstest.Host) *child {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	p, err := h.Start(netnstest.Command{Args: []string{"/proc/self/exe"}, Env: []string{childSocket + "=" + path}})
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, process: p}
	await.NoError(t, testTimeout, func() error {
		c.client, err = rpc.Dial("unix", path)
		return err
	})
	t.Cleanup(func() {
		c.client.Close() //nolint:errcheck // the process ends
		for _, bad := range []string{"panic:", "fatal error:"} {
			if strings.Contains(p.Output(), bad) {
				t.Errorf("the speaker has had a %s", bad)
			}
		}
		if hasRace(p.Output()) {
			t.Error("the speaker has had a data race")
		}
		if t.Failed() {
			t.Logf("speaker in %s:\n%s", h.Name, p.Output())
		}
	})
	return c
}

// hasRace reports whether an output has a data race of the speaker. gobgp v4.8.0 has some of its
// own: its receiver reads what OPEN has negotiated while the next session begins.
func hasRace(output string) bool {
	for report := range strings.SplitSeq(output, "==================\n") {
		if !strings.Contains(report, "WARNING: DATA RACE") {
			continue
		}
		accesses := racingAccess.FindAllStringSubmatch(report, -1)
		if len(accesses) != 2 || !strings.HasPrefix(accesses[0][1], gobgpPath) || !strings.HasPrefix(accesses[1][1], gobgpPath) {
			return true
		}
	}
	return false
}

const gobgpPath = "github.com/osrg/gobgp/"

// racingAccess matches an access in the report of a data race, and the function that made it.
var racingAccess = regexp.MustCompile(`(?m)^ *(?:Previous )?(?i:read|write) at .*\n *(\S+)`)

// TestHasRace checks which reports count.
func TestHasRace(t *testing.T) {
	t.Parallel()
	const report = "==================\nWARNING: DATA RACE\nRead at 0x0 by goroutine 42:\n  %s()\n      a.go:1 +0x714\n\n" +
		"Previous write at 0x0 by goroutine 28:\n  %s()\n      b.go:2 +0x16c7\n==================\n"
	theirs, ours := gobgpPath+"v4/pkg/server.(*fsm).f", "loxilb/internal/announce/speaker.f"
	for _, c := range []struct {
		read, write string
		want        bool
	}{{theirs, theirs, false}, {theirs, ours, true}, {ours, theirs, true}} {
		if got := hasRace("INFO\n" + fmt.Sprintf(report, c.read, c.write) + "INFO\n"); got != c.want {
			t.Errorf("a race of %s and %s counts as ours: %v, want %v", c.read, c.write, got, c.want)
		}
	}
	if hasRace("INFO\n") {
		t.Error("no race counts")
	}
}

func (c *child) try(method string, args any) error {
	return c.client.Call("Speaker."+method, args, &struct{}{})
}

func (c *child) call(method string, args any) {
	c.t.Helper()
	if err := c.try(method, args); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) sessions() []Session {
	c.t.Helper()
	var s []Session
	if err := c.client.Call("Speaker.Sessions", struct{}{}, &s); err != nil {
		c.t.Fatal(err)
	}
	return s
}

func (c *child) usage() Usage {
	c.t.Helper()
	var u Usage
	if err := c.client.Call("Speaker.Usage", struct{}{}, &u); err != nil {
		c.t.Fatal(err)
	}
	return u
}

// session returns the session with a neighbor.
func (c *child) session(key string) (Session, error) {
	for _, s := range c.sessions() {
		if s.Key == key {
			return s, nil
		}
	}
	return Session{}, errors.New("no session with " + key)
}

// established waits for a session.
func (c *child) established(key string) {
	c.t.Helper()
	await.NoError(c.t, testTimeout, func() error {
		s, err := c.session(key)
		if err == nil && s.State != Established {
			err = fmt.Errorf("session with %s is %+v", key, s)
		}
		return err
	})
}

const testTimeout = 30 * time.Second

// monitor prints changes of routes.
func monitor() netnstest.Command {
	return netnstest.Command{Args: []string{"ip", "-o", "monitor", "route"}}
}
