package labtest

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"loxilb/test/netnstest"
)

// Pair creates two hosts with a link between them: eth0 of a has 10.1.0.1/24 and 2001:db8:1::1/64,
// that of b has .2 and ::2. They are removed when the test ends.
func Pair(t testing.TB) (a, b *netnstest.Host) {
	t.Helper()
	l := New(t)
	hosts := make([]*netnstest.Host, 2)
	for i, name := range []string{"a", "b"} {
		h, err := l.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		hosts[i] = h
	}
	end := func(i int) netnstest.End {
		return netnstest.End{Host: hosts[i-1], Interface: "eth0", Addresses: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.1.0.%d/24", i)),
			netip.MustParsePrefix(fmt.Sprintf("2001:db8:1::%d/64", i)),
		}}
	}
	if err := l.Link(end(1), end(2), 0); err != nil {
		t.Fatal(err)
	}
	// Adding the link-local address is the last thing that the kernel does on its own.
	for _, h := range hosts {
		Eventually(t, 20*time.Second, func(context.Context) error {
			if out := Run(t, h, "ip", "-6", "route", "show", "table", "local", "dev", "eth0"); !strings.Contains(out, "local fe80::") {
				return fmt.Errorf("still settling: %s", out)
			}
			return nil
		})
	}
	return hosts[0], hosts[1]
}

// Run runs a command in the host and returns its output. If the command fails, the test ends.
func Run(t testing.TB, h *netnstest.Host, args ...string) string {
	t.Helper()
	out, err := h.Run(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
