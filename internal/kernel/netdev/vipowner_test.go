package netdev

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/mirror"
	"loxilb/internal/kernel/netdev/netlink"
	"loxilb/test/netnstest/labtest"
)

// flakyVIPs fails every request if broken, and otherwise requests about one address.
type flakyVIPs struct {
	vipKernel
	broken  bool
	refused netip.Addr
}

func (f *flakyVIPs) Batch(ctx context.Context, requests []*netlink.Request, done func(int, []byte, error)) error {
	if f.broken {
		return errors.New("broken")
	}
	return f.vipKernel.Batch(ctx, requests, func(i int, answer []byte, err error) {
		if f.refused.IsValid() && strings.Contains(string(requests[i].Body()), string(f.refused.AsSlice())) {
			err = unix.EPERM
		}
		done(i, answer, err)
	})
}

// testOwner returns the owner of VIPs in a namespace.
func testOwner(t *testing.T, path string) *VIPOwner {
	t.Helper()
	ns, err := netlink.OpenNamespace(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mirror.Open(ns, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	o, err := newVIPOwner(ns, m, newSettings(ns), func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(o.Close(), m.Close(), ns.Close()) })
	return o
}

// TestLocalWhenAdded checks that the kernel receives packets for an IPv6 VIP as soon as it is
// added. The kernel adds the local route in a work queue, and drops replies to its own requests
// from the VIP until then.
func TestLocalWhenAdded(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	o := testOwner(t, a.Path())
	for n := range 200 {
		vip := netip.AddrFrom16([16]byte{0: 0x20, 1: 1, 2: 0xd, 3: 0xb8, 15: byte(n)})
		if failed := o.Add(t.Context(), vip); failed != nil {
			t.Fatal(failed)
		}
		if missing, err := o.notLocal(t.Context(), []netip.Addr{vip}); err != nil || len(missing) != 0 {
			t.Fatalf("VIP %d is added, and not local: %v", n, err)
		}
	}
}

// TestFailures checks that a failing VIP does not affect the others, that each has its error, and
// that a retry adds it.
func TestFailures(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	o := testOwner(t, a.Path())
	f := &flakyVIPs{vipKernel: o.conn}
	o.conn = f
	one, two := netip.MustParseAddr("20.20.20.1"), netip.MustParseAddr("20.20.20.2")
	has := func(want ...netip.Addr) {
		t.Helper()
		got := o.Owned()
		if len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
			t.Errorf("owned: %v, want %v", got, want)
		}
	}
	f.broken = true
	if failed := o.Add(t.Context(), one, two); len(failed) != 2 || failed[one] == nil || failed[two] == nil {
		t.Errorf("failed: %v, and nothing can work", failed)
	}
	if problems := o.Problems(); len(problems) != 2 {
		t.Errorf("problems: %v", problems)
	}
	f.broken, f.refused = false, two
	if failed := o.Set(t.Context(), []netip.Addr{one, two}); len(failed) != 1 || failed[two] == nil {
		t.Errorf("failed: %v, and only %s is refused", failed, two)
	}
	has(one)
	f.refused = netip.Addr{}
	labtest.Run(t, a, "ip", "addr", "del", two.String(), "dev", "lo") // the address was removed in spite of the refusal
	o.Retry(t.Context())
	has(one, two)
	if problems := o.Problems(); problems != nil {
		t.Errorf("problems: %v", problems)
	}
	f.refused = two
	if failed := o.Remove(t.Context(), one, two); len(failed) != 1 || failed[two] == nil {
		t.Errorf("failed to remove: %v, and only %s is refused", failed, two)
	}
	has(two)
	f.refused = netip.Addr{}
	if failed := o.Remove(t.Context(), one, two); failed != nil {
		t.Errorf("failed to remove: %v", failed)
	}
	has()
}
