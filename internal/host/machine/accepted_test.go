package machine

import (
	"net/netip"
	"testing"
)

// TestAddress checks addresses in the kernel's notation.
func TestAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0100007F:0016":                         "127.0.0.1:22",
		"B80D0120000000000000000001000000:01BB": "[2001:db8::1]:443",
		"0000000000000000FFFF00000101A8C0:2B67": "192.168.1.1:11111",
	} {
		if got, err := parseAddress(text); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "0100007F", "01:02", "0100007F:12345", "zz00007F:0016"} {
		if got, err := parseAddress(bad); err == nil {
			t.Errorf("%q is read as %s", bad, got)
		}
	}
}

// TestHasAddress checks addresses of the machine, and the wildcard addresses.
func TestHasAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"127.0.0.1": true, "0.0.0.0": true, "::": true, "203.0.113.251": false} {
		if own, err := HasAddress([]netip.Addr{netip.MustParseAddr("203.0.113.250"), netip.MustParseAddr(text)}); err != nil || own != want {
			t.Errorf("%s: %v %v, want %v", text, own, err, want)
		}
	}
}
