package netdev

import (
	"fmt"
	"testing"
)

// TestXDPFeatures checks that the features of a veth follow those of its other end, whose change
// causes an event although the veth itself has not changed.
func TestXDPFeatures(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	run(t, a, "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", b.Namespace)
	run(t, a, "ip", "link", "set", "v0", "up")
	run(t, b, "ip", "link", "set", "v1", "up")
	n, r := runHost(t, a)
	features := func() XDPFeatures {
		t.Helper()
		all, err := n.XDPFeatures()
		if err != nil {
			t.Fatal(err)
		}
		if all == nil {
			t.Skip("this kernel does not report XDP features")
		}
		l, err := n.named("v0")
		if err != nil {
			t.Fatal(err)
		}
		return all[l.Index]
	}
	if got := features(); got&(XDPBasic|XDPRedirect|XDPTransmit) != XDPBasic|XDPRedirect {
		t.Errorf("features %b at first", got)
	}
	for _, step := range []struct {
		gro  string
		want XDPFeatures
	}{{"on", XDPTransmit}, {"off", 0}} {
		before := r.linkEvents()
		run(t, b, "ethtool", "-K", "v1", "gro", step.gro)
		eventually(t, func() error {
			if links := r.linkEvents(); links == before || features()&XDPTransmit != step.want {
				return fmt.Errorf("GRO %s: features %b, %d events of links", step.gro, features(), links-before)
			}
			return nil
		})
	}
}
