package explain

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"loxilb/internal/control/servicestate"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// silentHealth knows only what probes have found about one endpoint.
type silentHealth struct{ probed *report.EndpointHealth }

func (silentHealth) EndpointVerdict(*lb.Service, lb.Endpoint) report.Verdict { return report.Verdict{} }
func (h silentHealth) EndpointsNamed(_ []string, yield func(*report.EndpointHealth) bool) {
	if h.probed != nil {
		yield(h.probed)
	}
}
func (silentHealth) HasAsymmetricReply(netip.AddrPort) bool { return false }
func (silentHealth) IPsecRefusal(*lb.Service, lb.Endpoint) (policy.IPsecRefusal, bool) {
	return policy.IPsecRefusal{}, false
}

// TestDownReason checks that an endpoint without a probe is down for a reason, too.
func TestDownReason(t *testing.T) {
	t.Parallel()
	e := lb.Endpoint{Addr: netip.MustParseAddr("50.1.1.1"), Port: 80, Weight: 1}
	s := &lb.Service{Endpoints: []lb.Endpoint{e}}
	known := servicestate.Endpoint{Weight: 1, Available: true, Verdict: report.Verdict{NoRoute: true}}
	i := &inquiry{Explainer: New(Explainer{Health: silentHealth{}})}
	if got := i.downReason(s, e, known); !strings.Contains(got, "it has no route") {
		t.Errorf(`got %v, want "it has no route" in got`, got)
	}
	probed := &report.EndpointHealth{State: report.HealthDown, Evidence: "connection refused"}
	probed.Addr = e.Addr
	i.Health = silentHealth{probed}
	if got := i.downReason(s, e, known); got != "it is down: connection refused" {
		t.Errorf(`got %v, want "it is down: connection refused"`, got)
	}
	known.Available = false
	if got := i.ineligibleReason(s, 0, known); got != "it is down: connection refused" {
		t.Errorf(`got %v, want "it is down: connection refused"`, got)
	}
}

// TestMissingRoute checks that a blackhole route is described instead of the kernel's error, which
// does not help an operator.
func TestMissingRoute(t *testing.T) {
	t.Parallel()
	to := netip.MustParseAddr("50.1.1.1")
	for err, want := range map[error]string{
		unix.EINVAL:      "the route to 50.1.1.1 refuses packets: it is unreachable, prohibit or blackhole",
		unix.EACCES:      "the route to 50.1.1.1 refuses packets: it is unreachable, prohibit or blackhole",
		unix.ENETUNREACH: "no route to 50.1.1.1: network is unreachable",
	} {
		if got := missingRoute(to, err); got != want {
			t.Errorf("got %v: %s, want %v", err, got, want)
		}
	}
}
