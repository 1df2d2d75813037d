package httpapi

import (
	"path/filepath"

	"loxilb/internal/lb"
)

// probeFiles refuses files of a probe that the daemon would not read: what lies elsewhere would look to users like an endpoint that is down.
func (a *API) probeFiles(p *lb.Probe) error {
	if a.ProbeFiles == "" {
		return nil
	}
	for _, f := range [...]struct{ field, name string }{
		{lb.FieldProbeCA, p.CA}, {lb.FieldProbeCertificate, p.Certificate}, {lb.FieldProbeKey, p.Key},
	} {
		if f.name == "" {
			continue
		}
		if below, err := filepath.Rel(a.ProbeFiles, f.name); err != nil || !filepath.IsLocal(below) || below == "." {
			return lb.NewFieldError(f.field, f.name, "is not below "+a.ProbeFiles+", where files of probes are", "a file below "+a.ProbeFiles)
		}
	}
	return nil
}

// idleProbe says so if a service has in it how its endpoints are to be asked, and nobody asks them. Times and counts are no sign of it: clients send
// their defaults.
func idleProbe(s *lb.Service, notes *warnings) {
	if s.Monitored() || s.Probe.Type != lb.ProbeAuto {
		return
	}
	for _, f := range [...]struct {
		field string
		given bool
	}{
		{lb.FieldProbeRequest, s.Probe.Request != ""}, {lb.FieldProbeResponse, s.Probe.Response != ""}, {lb.FieldProbePort, s.Probe.Port != 0},
		{lb.FieldProbeHost, s.Probe.Host != ""}, {lb.FieldProbeStatuses, len(s.Probe.Statuses) > 0},
		{lb.FieldProbeCA, s.Probe.CA != ""}, {lb.FieldProbeCertificate, s.Probe.Certificate != ""},
	} {
		if f.given {
			notes.add("%s has no effect: the endpoints of %s are not probed until monitor or probetype says so", propertyOf(f.field, -1), s.Key)
			return
		}
	}
}
