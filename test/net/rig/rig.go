// Package rig has helpers for the tests below test/net: the standard topology of netnstest with a
// daemon in the balancer's namespace (New), servers on its endpoints (ServeNames, ServeSources,
// ServeEcho), single clients (Ask, Dial, Datagram, Transfer), steady load (Clients, Traffic), the
// daemon's answers (Loxicmd, Metric, EventuallyShows), and the tests' flags (Main).
package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// Patience limits how long a test waits for something that should happen immediately.
const Patience = 10 * time.Second

// StartPatience limits how long a daemon may take to start. An emulated kernel 6.1 takes half a
// minute to verify the programs.
const StartPatience = 2 * time.Minute

// Rig is the standard topology with a daemon in the balancer's namespace.
type Rig struct {
	*netnstest.Standard
	*netnstest.Daemon
	T testing.TB

	// State at the start of the test, if the rig is shared.
	startProcess *netnstest.Process
	logStart     int    // length of the process's output
	startMetrics string // the metrics page
}

// Options of a rig.
type Options struct {
	netnstest.Options
	Args   []string                              // further flags of the daemon
	Before func(testing.TB, *netnstest.Standard) // called before the daemon starts
}

// New builds the topology and starts the daemon. If the test fails, it shows the daemon's log.
func New(t testing.TB, o Options) *Rig {
	t.Helper()
	s := labtest.Standard(t, o.Options)
	if o.Before != nil {
		o.Before(t, s)
	}
	r := &Rig{Standard: s, T: t}
	if err := r.start(o.Args); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("loxilb's log:\n%s", r.Log())
		}
	})
	return r
}

// start starts the daemon for the first time.
func (r *Rig) start(args []string) (err error) {
	ctx, cancel := context.WithTimeout(r.T.Context(), StartPatience)
	defer cancel()
	r.Daemon, err = r.LB.StartDaemon(ctx, netnstest.DaemonOptions{Bin: Bin(), Args: args})
	return err
}

// Loxicmd runs loxicmd with the given line as its arguments, and returns the output. The test ends
// if the command fails.
func (r *Rig) Loxicmd(line string, args ...any) string {
	r.T.Helper()
	out, err := r.Command(strings.Fields(fmt.Sprintf(line, args...))...)
	if err != nil {
		r.T.Fatal(err)
	}
	return out
}

// Restart starts the daemon again after Stop or Kill.
func (r *Rig) Restart() {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), StartPatience)
	defer cancel()
	if err := r.Start(ctx); err != nil {
		r.T.Fatal(err)
	}
}

// Pins returns the paths of the daemon's pinned maps and links.
func (r *Rig) Pins() []string {
	var out []string
	err := filepath.WalkDir(netnstest.PinPath(r.Dir()), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.T.Fatalf("got %v, want no error or os.ErrNotExist", err)
	}
	return out
}

// MustRun runs a program on a host. The test ends if the program fails.
func MustRun(t testing.TB, h *netnstest.Host, args ...string) {
	t.Helper()
	if out, err := h.Run(args...); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}
