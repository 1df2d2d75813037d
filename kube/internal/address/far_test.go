package address

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// TestFarAddress checks that the search for a free or shared address is fast although a service has
// the last addresses of large pools: visiting each address in between would not end.
func TestFarAddress(t *testing.T) {
	t.Parallel()
	a := New()
	a.SetPools([]Pool{
		{Name: "four", Auto: true, Ranges: []Range{mustRange(t, "10.0.0.0/8")}, Sharing: ShareAlways},
		{Name: "six", Auto: true, Ranges: []Range{mustRange(t, "2001:db8::/64")}, Sharing: ShareAlways},
	})
	far := web("d/far")
	far.Slots = []Slot{{Address: netip.MustParseAddr("10.255.255.254")}, {IPv6: true, Address: netip.MustParseAddr("2001:db8::ffff:ffff:ffff:ffff")}}
	want(t, a, far, nil, "10.255.255.254 2001:db8::ffff:ffff:ffff:ffff")
	began := time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := web("d/any")
		r.Slots = []Slot{{}, {IPv6: true}}
		want(t, a, r, nil, "10.0.0.1 2001:db8::1")
		r = web("d/shares")
		r.Ports[0].Number = 81
		want(t, a, r, nil, "10.0.0.1")
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("a service waits for an address for a minute")
	}
	for i := range 2000 { // every other address is free again
		want(t, a, web(fmt.Sprint("d/", i)), nil, netip.AddrFrom4([4]byte{10, 0, byte((i + 2) >> 8), byte(i + 2)}).String())
	}
	for i := 0; i < 2000; i += 2 {
		a.Release(fmt.Sprint("d/", i))
	}
	for i := 0; i < 2000; i += 2 {
		want(t, a, web(fmt.Sprint("d/", i)), nil, netip.AddrFrom4([4]byte{10, 0, byte((i + 2) >> 8), byte(i + 2)}).String())
	}
	t.Log(time.Since(began))
}
