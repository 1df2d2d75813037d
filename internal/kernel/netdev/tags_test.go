package netdev

import (
	"errors"
	"testing"
)

// TestHidesTags checks that the offload of a device decides, and that its change causes an event; a
// veth always hides tags.
func TestHidesTags(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	run(t, a, "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", b.Namespace)
	n, r := runHost(t, a)
	hides := func(name string) bool {
		t.Helper()
		l, err := n.named(name)
		if err != nil {
			t.Fatal(err)
		}
		return n.HidesTags(l)
	}
	before := r.linkEvents()
	run(t, a, "ethtool", "-K", "v0", "rxvlan", "off")
	eventually(t, func() error {
		if r.linkEvents() == before {
			return errors.New("a change of an offload is no event")
		}
		return nil
	})
	if !hides("v0") {
		t.Error("a veth without the offload shows tags")
	}
	if hides("lo") {
		t.Error("lo hides tags")
	}
	if !n.HidesTags(Link{Name: "gone"}) {
		t.Error("a device that cannot be probed shows tags")
	}
}
