// Package rig has what the tests below test/net share: the standard topology of netnstest with a
// daemon in the balancer's namespace (New), servers in its endpoints (ServeNames, ServeSources,
// ServeEcho), single clients (Ask, Dial, Datagram, Transfer), many busy clients (Crowd, Traffic),
// the daemon's answers (Loxicmd, Metric, EventuallyShows), and the tests' flags (Main).
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

// Patience is how long anything may take that should happen at once.
const Patience = 10 * time.Second

// StartPatience is how long a daemon may take to load its programs. An emulated kernel 6.1 takes
// half a minute to verify them.
const StartPatience = 2 * time.Minute

// Rig is the standard topology with a daemon in the balancer's namespace.
type Rig struct {
	*netnstest.Standard
	*netnstest.Daemon
	T testing.TB

	process *netnstest.Process // that the test began with, if the rig is shared
	logged  int                // length of its output by then
	counted string             // its metrics by then
}

// Options of a rig.
type Options struct {
	netnstest.Options
	Args   []string                              // of the daemon
	Before func(testing.TB, *netnstest.Standard) // called before the daemon starts
}

// New builds the topology and starts the daemon. When the test fails, the daemon's log is shown.
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

// Loxicmd runs the command line, given as words separated by spaces, and fails the test if it
// fails.
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

// Pinned lists the pins of the rig's daemon.
func (r *Rig) Pinned() []string {
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

// MustRun runs a program on a host, and fails the test if it fails.
func MustRun(t testing.TB, h *netnstest.Host, args ...string) {
	t.Helper()
	if out, err := h.Run(args...); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}
