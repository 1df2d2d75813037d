package services_test

import (
	"fmt"
	"strings"
	"testing"

	"loxilb/test/net/rig"
)

// TestUDP checks that a flow keeps its endpoint, that new flows use the endpoints in turn, and that
// replies of any size come from the VIP (a connected socket accepts no others).
func TestUDP(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeUDPEcho()
	r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s", rig.VIP6, rig.Endpoints6())
	for _, vip := range []string{rig.VIP4, rig.VIP6} {
		for i := range 6 {
			c := rig.DialUDP(t, r, rig.Join(vip, 53))
			want := r.Endpoints[i%3].Name + ": "
			for _, size := range []int{1, 100, 1400} {
				got, err := rig.Datagram(c, strings.Repeat("x", size))
				if err != nil {
					t.Fatalf("%s flow %d size %d: %v", vip, i, size, err)
				}
				if got != want+strings.Repeat("x", size) {
					t.Errorf("%s flow %d size %d: got %d bytes, %.10q, want those of %s", vip, i, size, len(got), got, want)
				}
			}
		}
	}
}

// TestUDPManyFlows checks that each new flow advances round robin by one.
func TestUDPManyFlows(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeUDPEcho()
	r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	counts := map[string]int{}
	for i := range 300 {
		c := rig.DialUDP(t, r, rig.Join(rig.VIP4, 53))
		got, err := rig.Datagram(c, fmt.Sprint(i))
		if err != nil {
			t.Fatalf("flow %d: %v", i, err)
		}
		name, rest, _ := strings.Cut(got, ": ")
		if rest != fmt.Sprint(i) {
			t.Errorf("flow %d: answer %q", i, got)
		}
		counts[name]++ // the socket stays open: a socket with the same port would be the same flow
	}
	for _, h := range r.Endpoints {
		if counts[h.Name] != 100 {
			t.Errorf("300 flows were spread as %v", counts)
		}
	}
}
