package announce

import (
	"context"
	"net/netip"
	"slices"
	"testing"
)

// fakeOwner is an owner that records its addresses.
type fakeOwner map[netip.Addr]bool

func (k fakeOwner) Set(_ context.Context, vips []netip.Addr) map[netip.Addr]error {
	clear(k)
	return k.Add(context.Background(), vips...)
}

func (k fakeOwner) Add(_ context.Context, vips ...netip.Addr) map[netip.Addr]error {
	for _, a := range vips {
		k[a] = true
	}
	return nil
}

func (k fakeOwner) Remove(_ context.Context, vips ...netip.Addr) map[netip.Addr]error {
	for _, a := range vips {
		delete(k, a)
	}
	return nil
}

// TestShared checks that an address is owned as long as one of several users wants it.
func TestShared(t *testing.T) {
	t.Parallel()
	ctx, all := t.Context(), fakeOwner{}
	s := Share(all)
	one, two := s.Part(), s.Part()
	a, b, c := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	for i, step := range []struct {
		do   func()
		want []netip.Addr
	}{
		{func() { one.Add(ctx, a, b) }, []netip.Addr{a, b}},
		{func() { two.Add(ctx, b, c) }, []netip.Addr{a, b, c}},
		{func() { one.Remove(ctx, a, b) }, []netip.Addr{b, c}},
		{func() { one.Set(ctx, []netip.Addr{a}) }, []netip.Addr{a, b, c}},
		{func() { two.Set(ctx, nil) }, []netip.Addr{a}},
		{func() { two.Remove(ctx, a) }, []netip.Addr{a}},
		{func() { one.Remove(ctx, a) }, nil},
	} {
		step.do()
		var got []netip.Addr
		for addr := range all {
			got = append(got, addr)
		}
		slices.SortFunc(got, netip.Addr.Compare)
		if !slices.Equal(got, step.want) {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}
