package netlink

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"loxilb/test/netnstest/labtest"
)

// spoil replaces the socket by a descriptor that is not a socket.
func spoil(t *testing.T, c *Conn) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), c.fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
}

// TestConnReopens checks that a socket that fails costs one request, not all later ones.
func TestConnReopens(t *testing.T) {
	t.Parallel()
	ns, err := OpenNamespace("")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	c, err := ns.Dial()
	if err != nil {
		t.Fatal(err)
	}
	links := func() (n int, err error) {
		err = c.Dump(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg), func(Message) { n++ })
		return n, err
	}
	if n, err := links(); n == 0 || err != nil {
		t.Fatalf("%d links, %v", n, err)
	}
	spoil(t, c)
	if _, err := links(); !errors.Is(err, unix.ENOTSOCK) {
		t.Errorf("a descriptor that is no socket gives %v", err)
	}
	if n, err := links(); n == 0 || err != nil {
		t.Errorf("after a failure: %d links, %v", n, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := links(); err == nil {
		t.Error("a closed socket is opened again")
	}
}

// TestLookUp checks that a failure for one host affects only that host.
func TestLookUp(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	ns, err := OpenNamespace(a.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	c, err := ns.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	hosts := []netip.Addr{netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.250.0.1"), netip.MustParseAddr("2001:db8:1::2")}
	var failed []bool
	err = c.LookUp(t.Context(), hosts, func(_ int, _ Route, err error) { failed = append(failed, err != nil) })
	if err != nil || len(failed) != 3 || failed[0] || !failed[1] || failed[2] {
		t.Errorf("failed: %v, %v", failed, err)
	}
	if _, _, err := unix.Recvfrom(c.fd, c.buf, unix.MSG_DONTWAIT); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("there is more than one answer for a host: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = c.LookUp(ctx, hosts, func(int, Route, error) { t.Error("looked up after the context ended") })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the error context.Canceled", err)
	}
}
