package services

import (
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/compat"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb"
)

// entries lists the services of a request, and reports whether it has a list.
func entries(req *v1.LoadbalanceRequest) (list []v1.LoadbalanceEntry, bulk bool, p *rest.Problem) {
	if req.LbAttr != nil {
		if !req.Alone() {
			return nil, true, rest.Refuse(http.StatusBadRequest, "lbAttr cannot be combined with another property: write either one service or lbAttr alone")
		}
		return req.LbAttr, true, nil
	}
	if req.ServiceArguments == nil {
		return nil, false, rest.RefuseField(http.StatusBadRequest, "serviceArguments", "", "is missing", "the arguments of a service, or lbAttr with a list")
	}
	return []v1.LoadbalanceEntry{req.Entry()}, false, nil
}

// services decodes all services of a request. It refuses two services with the same key, since one
// would overwrite the other.
func (c *codec) services(list []v1.LoadbalanceEntry, bulk bool) ([]request, *rest.Problem) {
	out := make([]request, 0, len(list))
	seen := make(map[lb.Key]int, len(list))
	for i := range list {
		place := i
		if !bulk {
			place = notInList
		}
		r, p := c.fromPOST(place, &list[i])
		if p != nil {
			return nil, p
		}
		if first, ok := seen[r.Key]; ok {
			return nil, rest.RefuseField(http.StatusBadRequest, r.at+"serviceArguments", r.Key.String(),
				fmt.Sprintf("is given twice, in lbAttr[%d] and lbAttr[%d]", first, i), "each service once")
		}
		seen[r.Key] = i
		out = append(out, r)
	}
	return out, nil
}

// notInList is the place of a service that is not in a list.
const notInList = -1

// fromPOST decodes an entry of POST or of a boot file, in which the existing loxilb's spellings are
// valid.
func (c *codec) fromPOST(place int, e *v1.LoadbalanceEntry) (request, *rest.Problem) {
	var notes rest.Warnings
	compat.NormalizeArguments(c.hideNative, placeOf(place), &e.ServiceArguments, &notes)
	r, p := c.request(place, e)
	r.notes = notes
	return r, p
}

// placeOf returns the path prefix for properties of an entry.
func placeOf(place int) string {
	if place == notInList {
		return ""
	}
	return "lbAttr[" + strconv.Itoa(place) + "]."
}

// request decodes the entry at an index of lbAttr.
func (c *codec) request(place int, e *v1.LoadbalanceEntry) (r request, p *rest.Problem) {
	r.at = placeOf(place)
	if r.Service, p = c.service(r.at, e); p != nil {
		return r, p
	}
	r.oper, p = operOf(r.at, &e.ServiceArguments)
	return r, p
}

// probeFiles refuses files of a probe outside of the directory that the daemon reads: the endpoint
// would look down otherwise.
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

// warnIneffective adds a warning for each setting of a service that has no effect.
func warnIneffective(s *lb.Service, notes *rest.Warnings) {
	for _, i := range s.IneffectiveSettings() {
		notes.Add("%s has no effect: %s", PropertyOf(i.Field, -1), i.Why)
	}
}

// privateIP adds the address to which a cloud translates the VIP. Packets to it are balanced as
// well. In modes that translate the source, endpoints see it instead of the VIP, unless the service
// has a list of source addresses.
func privateIP(at, text string, s *lb.Service) *rest.Problem {
	if text == "" {
		return nil
	}
	const field = "serviceArguments.privateIP"
	a, err := lb.ParseAddr(at+field, text)
	if err != nil {
		return rest.BadRequest(err)
	}
	if a == s.VIP || a.IsUnspecified() {
		return nil
	}
	if !s.VIP.IsUnspecified() && a.Is4() == s.VIP.Is4() && !slices.Contains(s.Secondary, a) {
		if len(s.Secondary) == lb.MaxSecondary {
			return rest.RefuseField(http.StatusBadRequest, at+field, text, "is one address too many, together with those of secondaryIPs", "")
		}
		s.Secondary = append(s.Secondary, a)
	}
	if len(s.SNAT) == 0 && (s.Mode.TranslatesSource() || s.Egress) && hasEndpoint(s, a.Is4()) {
		s.SNAT = []netip.Addr{a}
	}
	return nil
}

// hasEndpoint reports whether the service has an endpoint of an IP version. Endpoints of the other
// one cannot answer such an address.
func hasEndpoint(s *lb.Service, ipv4 bool) bool {
	return slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool { return e.Addr.Is4() == ipv4 })
}
