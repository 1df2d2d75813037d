package users

import (
	"net/http"
	"slices"
	"strings"

	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/internal/api/page"
)

// Admit refuses requests of callers without access, or without the right to this request. Health
// checks are open to anyone.
func (a *API) Admit(r *http.Request, who *rest.Principal) *rest.Problem {
	pattern := a.Pattern(r)
	method, path, _ := strings.Cut(pattern, " ")
	path = strings.TrimPrefix(path, rest.BaseURL)
	switch {
	case slices.Contains(a.Open, r.URL.Path) && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		return nil
	case page.Serves(r) && who.By == transport.BySocket:
		// Otherwise a page of another site could have the same origin, with root's rights: its name
		// may resolve to the address where the socket is forwarded.
		return rest.Refuse(http.StatusNotFound, "the page is served over TCP, and not by the UNIX socket")
	case page.Serves(r):
		return nil
	case (a.crossOrigin.Check(r) != nil || byOtherSite(r)) && !a.origins.has(r.Header.Get("Origin")):
		return rest.Refuse(http.StatusForbidden, "requests of web pages are not answered")
	case who.By != transport.BySocket && !a.requiresToken() && !a.knownHost(r.Host, who.By):
		return rest.RefuseField(http.StatusForbidden, "Host", r.Host, "is not a known name of this machine", "an IP address, localhost or a name of --api-hosts")
	case path == loginPath:
		return nil // this request reports the caller's identity
	}
	if p := a.identify(r, who); p != nil {
		if path == whoamiPath && method == http.MethodGet {
			who.Why = p.Body.Message // part of the answer
			return nil
		}
		return p
	}
	if need := access.Needed(method, path); pattern != "" && who.Role < need {
		return rest.Refuse(http.StatusForbidden, "user %s has the role %s, and %s %s needs the role %s", who.Name, who.Role, method, path, need)
	}
	return nil
}

// byOtherSite reports whether a browser sent the request for a page of another site. The page does
// not see the answer, but some answers are expensive.
func byOtherSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// requiresToken reports whether every request over TCP needs a token.
func (a *API) requiresToken() bool { return a.Token != "" || a.RequireTokens }
