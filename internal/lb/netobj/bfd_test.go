package netobj

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestKeepalive checks the value of --ka.
func TestKeepalive(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr
	for text, want := range map[string]BFDSession{
		"172.17.0.3":                         {Remote: addr("172.17.0.3"), Interval: DefaultBFDInterval},
		"172.17.0.3:172.17.0.2":              {Remote: addr("172.17.0.3"), Source: addr("172.17.0.2"), Interval: DefaultBFDInterval},
		"172.17.0.3:172.17.0.2:100000":       {Remote: addr("172.17.0.3"), Source: addr("172.17.0.2"), Interval: MinBFDInterval},
		"172.17.0.3::500000":                 {Remote: addr("172.17.0.3"), Interval: 500 * time.Millisecond},
		"[2001:db8::3]:[2001:db8::2]:100000": {Remote: addr("2001:db8::3"), Source: addr("2001:db8::2"), Interval: MinBFDInterval},
		"[fe80::3%eth0]:[fe80::2%eth0]":      {Remote: addr("fe80::3%eth0"), Source: addr("fe80::2%eth0"), Interval: DefaultBFDInterval},
		"[2001:db8::3]":                      {Remote: addr("2001:db8::3"), Interval: DefaultBFDInterval},
	} {
		got, err := ParseKeepalive(text)
		if want = want.Normal(); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want no error, %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                              `remote address is missing`,
		"172.17.0.3:x":                  `source "x" is not an IP address`,
		"172.17.0.3:172.17.0.2:99999":   `interval "99999" is out of range (allowed: 100000 to 60000000 microseconds)`,
		"172.17.0.3:172.17.0.2:1s":      `interval "1s" is not a number`,
		"172.17.0.3:172.17.0.3":         `is the remote address`,
		"172.17.0.3:[2001:db8::1]":      `is of another IP version`,
		"172.17.0.3:172.17.0.2:100000:": "",
		"1.1.1.1:1.1.1.2:200000:7":      `has too many parts`,
		"224.0.0.1":                     `is a multicast address`,
		"fe80::1":                       `is not an IP address`,
		"[fe80::1]":                     `is link-local, but has no zone`,
	} {
		if _, err := ParseKeepalive(text); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestKey checks that the default instance has one name in keys.
func TestKey(t *testing.T) {
	t.Parallel()
	a := netip.MustParseAddr("10.0.0.2")
	for instance, want := range map[string]string{"": "10.0.0.2", "default": "10.0.0.2", "llb-inst0": "10.0.0.2", "b": "10.0.0.2@b"} {
		if got := BFDKey(a, instance); got != want {
			t.Errorf("%q: %s, want %s", instance, got, want)
		}
	}
}
