package probe

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb"
)

// TestProhibited checks that a probe that the endpoint or a router prohibits is a failure, over
// IPv6 too, where a firewall of this machine could cause the same error. Probes of other endpoints
// are not affected.
func TestProhibited(t *testing.T) {
	t.Parallel()
	const port = 13
	rules := exec.Command("nft", "-f", "-")
	rules.Stdin = strings.NewReader(`table inet prohibited {
		chain input {
			type filter hook input priority filter; policy accept;
			meta l4proto { tcp, udp } th dport 13 reject with icmpx admin-prohibited
		}
	}`)
	if out, err := rules.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	c := connector(t)
	for loopback, want := range map[string]string{"127.0.0.1": "no route to host", "::1": "permission denied"} {
		to := netip.AddrPortFrom(netip.MustParseAddr(loopback), port)
		for _, kind := range []lb.ProbeType{lb.ProbeHTTP, lb.ProbeUDP, lb.ProbeGRPC} {
			wantError(t, Spec{To: to, Probe: lb.Probe{Type: kind, Timeout: 10 * time.Second}}, want)
		}
		if o := connect(t, c, Spec{To: to}); o.err == nil || o.err.Error() != want {
			t.Errorf("the outcome is %+v, want the error %q", o, want)
		}
		open := serve(t, to.Addr(), hold)
		if o := connect(t, c, Spec{To: open}); o.err != nil {
			t.Errorf("a probe of an endpoint that accepts, after one that does not: %v", o.err)
		}
	}
}
