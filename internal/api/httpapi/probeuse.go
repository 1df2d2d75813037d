package httpapi

import (
	"path/filepath"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb"
)

// probeFiles refuses files of a probe that the daemon would not read: what lies elsewhere would
// look to users like an endpoint that is down.
func (a *servicesAPI) probeFiles(p *lb.Probe) error {
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

// ineffective says which settings of a service change nothing as it is.
func ineffective(s *lb.Service, notes *rest.Warnings) {
	for _, i := range s.Ineffective() {
		notes.Add("%s has no effect: %s", propertyOf(i.Field, -1), i.Why)
	}
}
