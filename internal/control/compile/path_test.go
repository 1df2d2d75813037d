package compile

import (
	"net/netip"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// TestPathPrefixes checks the lengths of the networks through which an endpoint is reached, in 128
// bits. A route to half of all addresses, as VPNs add, is no default route.
func TestPathPrefixes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		source, endpoint      string
		sourceBits, routeBits uint8
		wantSource, wantAddr  uint8
	}{
		{"10.1.0.254", "10.1.0.1", 24, 0, 96 + 24, 0},
		{"10.1.0.254", "192.0.2.1", 0, 1, 0, 96 + 1},
		{"10.1.0.254", "192.0.2.1", 32, 32, 128, 128},
		{"2001:db8::1", "2001:db8::2", 64, 1, 64, 1},
	} {
		p := Path{Source: netip.MustParseAddr(tc.source), SourceBits: tc.sourceBits, RouteBits: tc.routeBits}
		row := bpf.EndpointTable{}
		p.writeTo(&lb.Service{}, lb.Endpoint{Addr: netip.MustParseAddr(tc.endpoint)}, &row)
		if row.SourceBits != tc.wantSource || row.AddrBits != tc.wantAddr || row.Source.Netip() != p.Source {
			t.Errorf("with source %s/%d and a route to %s/%d, the row has source %s/%d and address bits %d, want %d and %d",
				tc.source, tc.sourceBits, tc.endpoint, tc.routeBits, row.Source.Netip(), row.SourceBits, row.AddrBits, tc.wantSource, tc.wantAddr)
		}
	}
}
