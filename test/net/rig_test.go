package net_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/netnstest"
	"loxilb/internal/netnstest/labtest"
)

// Virtual addresses that no interface has.
const (
	vip4 = "20.20.20.1"
	vip6 = "2001:db8:20::1"
)

// patience is how long anything may take that should happen at once.
const patience = 10 * time.Second

// rig is the standard topology with a daemon in the balancer's namespace.
type rig struct {
	*netnstest.Standard
	*netnstest.Daemon
	t testing.TB
}

// options of a rig.
type options struct {
	netnstest.Options
	args   []string                              // of the daemon
	before func(testing.TB, *netnstest.Standard) // called before the daemon starts
}

// newRig builds the topology and starts the daemon. When the test fails, the daemon's log is shown.
func newRig(t testing.TB, o options) *rig {
	t.Helper()
	s := labtest.Standard(t, o.Options)
	if o.before != nil {
		o.before(t, s)
	}
	r := &rig{Standard: s, t: t}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var err error
	r.Daemon, err = s.LB.StartDaemon(ctx, netnstest.DaemonOptions{Bin: os.Getenv(binDir), Args: o.args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("loxilb's log:\n%s", r.Log())
		}
	})
	return r
}

// serveUDPEcho has every endpoint answer datagrams on port 5353.
func (r *rig) serveUDPEcho() {
	r.t.Helper()
	for _, h := range r.Endpoints {
		if err := h.ServeUDPEcho(":5353"); err != nil {
			r.t.Fatal(err)
		}
	}
}

// lab disambiguates between the two parts of a rig that can be closed.
func (r *rig) lab() *netnstest.Lab { return r.Lab }

// loxicmd runs the command line, given as words separated by spaces, and fails the test if it fails.
func (r *rig) loxicmd(line string, args ...any) string {
	r.t.Helper()
	out, err := r.Command(strings.Fields(fmt.Sprintf(line, args...))...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// restart starts the daemon again after Stop or Kill.
func (r *rig) restart() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	if err := r.Start(ctx); err != nil {
		r.t.Fatal(err)
	}
}

// serveNames has every endpoint answer HTTP requests on :5001 with its name and the client's address.
func (r *rig) serveNames() {
	r.t.Helper()
	for _, h := range r.Endpoints {
		if err := h.ServeHTTPWith(":5001", nameHandler(h.Name)); err != nil {
			r.t.Fatal(err)
		}
	}
}

// ask sends an HTTP request from the client by a new connection and returns who answered.
func (r *rig) ask(address string) (string, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
	defer cancel()
	return r.Client.Get(ctx, address)
}

// wantAnswers fails the test unless the next requests are answered by these endpoints, in this order.
func (r *rig) wantAnswers(address string, want ...string) {
	r.t.Helper()
	var got []string
	for range want {
		who, err := r.ask(address)
		if err != nil {
			r.t.Fatalf("after answers by %v: %v", got, err)
		}
		name, _, _ := strings.Cut(who, " ")
		got = append(got, name)
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("%s: answered by %v, want %v", address, got, want)
	}
}

// wantNoAnswer fails the test if a connection comes about.
func (r *rig) wantNoAnswer(address string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 500*time.Millisecond)
	defer cancel()
	if c, err := r.Client.DialContext(ctx, "tcp", address); err == nil {
		_ = c.Close()
		r.t.Errorf("%s answers", address)
	}
}

// dial opens a TCP connection of the client.
func (r *rig) dial(address string) *net.TCPConn {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	c, err := r.Client.DialContext(ctx, "tcp", address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.lab().Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// exchange sends a line over a connection to an echo server and wants it back.
func exchange(c net.Conn, line string) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(line)); err != nil {
		return err
	}
	buf := make([]byte, len(line))
	for n := 0; n < len(buf); {
		m, err := c.Read(buf[n:])
		if err != nil {
			return err
		}
		n += m
	}
	if string(buf) != line {
		return fmt.Errorf("sent %q, got %q back", line, buf)
	}
	return nil
}

// endpoints4 and endpoints6 are the --endpoints of all three endpoints, with these weights or each with 1.
func endpoints4(weights ...int) string { return endpointList(weights, false) }
func endpoints6(weights ...int) string { return endpointList(weights, true) }

func endpointList(weights []int, six bool) string {
	var out []string
	for i, n := range netnstest.StandardNetworks()[1:] {
		weight := 1
		if i < len(weights) {
			weight = weights[i]
		}
		address := n.V4.Addr().String()
		if six {
			address = "[" + n.V6.Addr().String() + "]"
		}
		out = append(out, fmt.Sprintf("%s:%d", address, weight))
	}
	return strings.Join(out, ",")
}

// join is net.JoinHostPort with a number.
func join(host string, port int) string { return net.JoinHostPort(host, fmt.Sprint(port)) }

// pinned lists what is pinned for the rig's daemon.
func (r *rig) pinned() []string {
	var out []string
	err := filepath.WalkDir(netnstest.PinPath(r.Dir()), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	return out
}
