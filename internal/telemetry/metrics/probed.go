package metrics

import (
	"net/netip"

	"loxilb/internal/lb/report"
)

// maxFiles bounds the certificate files that a scrape reads: users of the API choose the files of
// probes.
const maxFiles = 100

// probed is the result of one walk through all probed addresses, which may be very many.
type probed struct {
	troubles map[troubleKey]trouble // zeros included: an endpoint without failures has not just come
	files    []CertificateFile
	down     []*report.EndpointHealth // at most maxDown; none if all endpoints have series
}

func newProbed(all bool, endpoints func(func(*report.EndpointHealth) bool)) probed {
	p := probed{troubles: map[troubleKey]trouble{}}
	seen := map[CertificateFile]bool{}
	for e := range endpoints {
		for _, service := range e.Services {
			of := troubleKey{service, netip.AddrPortFrom(e.Addr, e.Probe.Port)}
			one := p.troubles[of]
			p.troubles[of] = trouble{one.failed + e.Failed, max(one.downtime, e.Downtime)}
		}
		for _, of := range []CertificateFile{{"probe-ca", e.Probe.CA}, {"probe", e.Probe.Certificate}} {
			if of.File != "" && !seen[of] && len(seen) < maxFiles {
				seen[of] = true
				p.files = append(p.files, of)
			}
		}
		if !all && e.State == report.HealthDown && len(p.down) < maxDown {
			p.down = append(p.down, e)
		}
	}
	return p
}
