package httpapi

import (
	"net/http"
	"net/netip"
	"slices"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb"
)

// privateIP gives a service the address that stands for its VIP on this machine, in a cloud which
// translates one into the other: packets come to it, and it is what endpoints see where they see an
// address of ours. Where the service has a list of those, that is what they see.
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
			return rest.RefuseField(http.StatusBadRequest, at+field, text, "is one address too many beside those of secondaryIPs", "")
		}
		s.Secondary = append(s.Secondary, a)
	}
	if len(s.SNAT) == 0 && (s.Mode.TranslatesSource() || s.Egress) && hasEndpoint(s, a.Is4()) {
		s.SNAT = []netip.Addr{a}
	}
	return nil
}

// hasEndpoint tells whether the service has an endpoint of an IP version: others could not answer
// an address of it.
func hasEndpoint(s *lb.Service, ipv4 bool) bool {
	return slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool { return e.Addr.Is4() == ipv4 })
}
