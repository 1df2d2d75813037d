package objects

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"

	"loxilb/test/netnstest/labtest"
)

// TestTaps checks that a tunnel is made once, made again after it is removed by others, and removed
// when unused, and that tunnels of others stay.
func TestTaps(t *testing.T) {
	t.Parallel()
	host, err := labtest.New(t).Host("lb")
	if err != nil {
		t.Fatal(err)
	}
	k := kernelOf(t, host)
	labtest.Run(t, host, "ip", "link", "add", TapPrefix+"theirs", "type", "vxlan", "id", "7", "remote", "192.0.2.8", "dstport", "4790")
	first := Tap{Remote: netip.MustParseAddr("192.0.2.9"), Source: netip.MustParseAddr("192.0.2.1"), ID: 5}
	second := Tap{Remote: netip.MustParseAddr("2001:db8::9"), Source: netip.MustParseAddr("2001:db8::1"), ID: 6}
	for range 2 {
		for _, tap := range []Tap{first, first, second} {
			if err := k.MakeTap(tap); err != nil {
				t.Fatal(err)
			}
		}
		labtest.Run(t, host, "ip", "link", "del", first.Name())
	}
	if err := k.MakeTap(first); err != nil {
		t.Fatal(err)
	}
	has := func(name string, want bool) {
		t.Helper()
		if is, err := k.HasDevice(name); err != nil || is != want {
			t.Errorf("%s is there: %v, %v", name, is, err)
		}
	}
	for _, kept := range []string{first.Name(), ""} {
		if err := k.KeepTaps(func(name string) bool { return name == kept }); err != nil {
			t.Fatal(err)
		}
		has(first.Name(), kept != "")
		has(second.Name(), false)
		has(TapPrefix+"theirs", true)
	}
}

// TestERSPANRequest checks that the request to the kernel is that of `ip link add type erspan local
// 10.0.0.1 remote 10.0.0.2 key 5 seq ttl 64 erspan_ver 1 erspan 5`.
func TestERSPANRequest(t *testing.T) {
	t.Parallel()
	tap := Tap{ERSPAN: true, Remote: netip.MustParseAddr("10.0.0.2"), Source: netip.MustParseAddr("10.0.0.1"), ID: 5}
	body := tap.erspanRequest().Body()
	for _, attributes := range []string{ // as shown by strace
		"0a000100" + hex.EncodeToString([]byte("erspan")),
		"0800040000000005" + "0800050000000005" + "0600020030000000" + "0600030030000000" + "080006000a000001" + "080007000a000002",
		"0500080040000000", "0500160001000000", "0800150005000000",
	} {
		want, err := hex.DecodeString(attributes)
		if err != nil || !bytes.Contains(body, want) {
			t.Errorf("%x is not in\n%x (%v)", want, body, err)
		}
	}
}
