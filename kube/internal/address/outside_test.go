package address

import (
	"fmt"
	"net/netip"
	"testing"
)

// TestAddressOutsidePools checks that a service cannot share an address outside of all pools with a
// service of another namespace, unless they have a common key, and that PoolsOnly refuses such
// addresses.
func TestAddressOutsidePools(t *testing.T) {
	t.Parallel()
	a := New()
	at := netip.MustParseAddr("198.51.100.1")
	request := func(namespace, key string, port int32) *Request {
		r := web(fmt.Sprint(namespace, "/", port))
		r.Namespace, r.Key, r.Ports[0].Number, r.Slots[0].Address = namespace, key, port, at
		return r
	}
	want(t, a, request("shop", "k", 80), nil, "198.51.100.1")
	want(t, a, request("shop", "", 443), nil, "198.51.100.1")
	const refusal = "address 198.51.100.1 belongs to service shop/%d of another namespace, and they have no common sharing key"
	want(t, a, request("evil", "", 22), nil, fmt.Sprintf(refusal, 443))
	want(t, a, request("evil", "other", 22), nil, fmt.Sprintf(refusal, 443))
	want(t, a, request("evil", "", 22), []netip.Addr{at}, "198.51.100.1") // it has the address already
	a.Release("evil/22")
	a.Release("shop/443")
	want(t, a, request("evil", "", 22), nil, fmt.Sprintf(refusal, 80))
	want(t, a, request("friend", "k", 22), nil, "198.51.100.1")

	a = New()
	a.PoolsOnly = true
	a.SetPools([]Pool{{Name: "p", Ranges: []Range{mustRange(t, "10.0.0.0/24")}}})
	want(t, a, request("shop", "", 80), nil, "address 198.51.100.1 is in no pool, and services may only request addresses of pools")
	want(t, a, request("shop", "", 80), []netip.Addr{at}, "198.51.100.1")
	at = netip.MustParseAddr("10.0.0.7")
	want(t, a, request("shop", "", 81), nil, "10.0.0.7")
}
