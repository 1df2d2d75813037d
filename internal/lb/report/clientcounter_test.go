package report

import (
	"fmt"
	"net/netip"
	"testing"
)

func directions(in, out uint64) (request, reply Connection) {
	request.Traffic = Traffic{Packets: in / 100, Bytes: in}
	reply.Reply, reply.Traffic = true, Traffic{Packets: out / 100, Bytes: out}
	return request, reply
}

// TestClientsExact checks that with few clients all numbers are exact, in the requested order, by
// address or by network.
func TestClientsExact(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		order        ClientOrder
		bits4, bits6 int
		want         string
	}{
		{ByConnections, 32, 128, "[10.0.0.2/32 3 10.0.0.1/32 1 2001:db8::1/128 1]"},
		{ByBytes, 32, 128, "[10.0.0.1/32 1 10.0.0.2/32 3 2001:db8::1/128 1]"},
		{ByPackets, 24, 64, "[10.0.0.0/24 4 2001:db8::/64 1]"},
	} {
		counter := NewClientCounter(c.order, 100, c.bits4, c.bits6)
		for client, times := range map[string]int{"10.0.0.1": 1, "10.0.0.2": 3, "2001:db8::1": 1} {
			for range times {
				in, out := directions(100, 200)
				if client == "10.0.0.1" {
					out.Traffic.Bytes += 9000
				}
				counter.Add(netip.MustParseAddr(client), &in)
				counter.Add(netip.MustParseAddr(client), &out)
			}
		}
		var got []any
		for _, u := range counter.Top(9) {
			got = append(got, u.Client, u.Connections)
		}
		if fmt.Sprint(got) != c.want || counter.Error() != 0 {
			t.Errorf("%s: %v, error %d; want %s", c.order, got, counter.Error(), c.want)
		}
		if all := counter.All(); all.Connections != 5 || all.In.Bytes != 500 || all.Out.Bytes != 10_000 {
			t.Errorf("%s: sums %+v", c.order, all)
		}
	}
}

// TestClientsBounded checks that a counter of 1,000 clients finds the 20 largest among a million.
// Their numbers are too small by at most the error, and the error is small.
func TestClientsBounded(t *testing.T) {
	t.Parallel()
	const clients, most, heavy = 1_000_000, 1000, 20
	counter := NewClientCounter(ByConnections, most, 32, 128)
	in, _ := directions(100, 0)
	address := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}) }
	for n := range clients {
		counter.Add(address(n), &in)
		if n%5 == 0 {
			counter.Add(netip.AddrFrom4([4]byte{20, 0, 0, byte(n / 5 % heavy)}), &in)
		}
		if counter.Clients() > most {
			t.Fatalf("%d clients are kept", counter.Clients())
		}
	}
	const all, exact = clients + clients/5, clients / 5 / heavy
	if e := counter.Error(); e == 0 || e > 2*all/most {
		t.Errorf("error %d, want at most %d", e, 2*all/most)
	}
	for _, u := range counter.Top(heavy) {
		if u.Client.Addr().As4()[0] != 20 {
			t.Errorf("%v is listed, which is not among the clients with the most connections", u.Client)
		}
		if u.Connections > exact || u.Connections+counter.Error() < exact {
			t.Errorf("%v has %d connections, error %d, want %d", u.Client, u.Connections, counter.Error(), exact)
		}
	}
	if sum := counter.All(); sum.Connections != all {
		t.Errorf("sums: %+v", sum)
	}
}
