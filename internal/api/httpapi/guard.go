package httpapi

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"

	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/internal/api/page"
)

// Listen opens all sockets, or none and says why.
func (a *API) Listen(ctx context.Context, l transport.Listen) (*transport.Server, error) {
	return transport.Open(ctx, l, transport.Parts{Handler: a.handler, Shutdown: a.streams.Close, Log: a.Log})
}

// Handler answers requests that came over TCP on loopback; those of Listen answer all.
func (a *API) Handler() http.Handler { return a.handler(transport.ByLoopback) }

func (a *API) handler(by transport.Way) http.Handler {
	// Browsers say where a request comes from; a web page has nothing to change here.
	origin := http.NewCrossOriginProtection()
	token := sha256.Sum256([]byte(a.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ow := rest.NewWriter(w, a.streams.Stall, a.unread)
		who := &rest.Principal{By: by}
		r = cleaned(r).WithContext(rest.WithPrincipal(r.Context(), who))
		defer func() {
			a.Observe(r.Method, ow.Code)
			a.account(r, who, ow)
			ow.Extend() // the server has the rest of the answer
		}()
		if a.answerOrigin(ow, r) {
			return
		}
		if p := a.guard(r, who, origin, token); p != nil {
			who.Stranger = true
			if p.Body.Code == http.StatusUnauthorized {
				ow.Header().Set("WWW-Authenticate", "Bearer")
			}
			ow.Header().Set("Connection", "close") // who may not use the API keeps nobody from it
			p.Write(ow)
			return
		}
		a.route(ow, r)
	})
}

// guard refuses requests of those who may not use the API, or not for this. How the daemon is,
// anybody may ask.
func (a *API) guard(r *http.Request, who *rest.Principal, origin *http.CrossOriginProtection, token [sha256.Size]byte) *rest.Problem {
	_, pattern := a.mux.Handler(r)
	method, path, _ := strings.Cut(pattern, " ")
	path = strings.TrimPrefix(path, BaseURL)
	switch {
	case (r.URL.Path == healthPath || r.URL.Path == readyPath) && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		return nil
	case page.Serves(r) && who.By == transport.BySocket:
		// A name that is made to resolve to where somebody forwards the socket to would be a page
		// of the same origin, with root's rights.
		return rest.Refuse(http.StatusNotFound, "the page is served over TCP, and not by the UNIX socket")
	case page.Serves(r):
		return nil
	case (origin.Check(r) != nil || byOtherSite(r)) && !a.origins.has(r.Header.Get("Origin")):
		return rest.Refuse(http.StatusForbidden, "requests of web pages are not answered")
	case who.By != transport.BySocket && !a.asksToken() && !a.knownHost(r.Host, who.By):
		return rest.RefuseField(http.StatusForbidden, "Host", r.Host, "is not a known name of this machine", "an IP address, localhost or a name of --api-hosts")
	case path == loginPath:
		return nil // who that is, it is to find out
	}
	if p := a.identify(r, who, token); p != nil {
		if path == whoamiPath && method == http.MethodGet {
			who.Why = p.Body.Message // that is the answer
			return nil
		}
		return p
	}
	if need := access.Needed(method, path); pattern != "" && who.Role < need {
		return rest.Refuse(http.StatusForbidden, "user %s has the role %s, and %s %s needs the role %s", who.Name, who.Role, method, path, need)
	}
	return nil
}

// byOtherSite tells whether a page of another site has a browser ask. It does not get to see the
// answer, but to make some answers takes work.
func byOtherSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// asksToken tells whether requests over TCP need a token, whoever they are of.
func (a *API) asksToken() bool { return a.Token != "" || a.AskTokens }

// route answers what no handler is for in JSON too.
func (a *API) route(w http.ResponseWriter, r *http.Request) {
	if _, pattern := a.mux.Handler(r); pattern != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	// The mux knows whether the path exists with other methods; its answer in plain text is not
	// shown.
	probe := &discard{header: make(http.Header)}
	a.mux.ServeHTTP(probe, r)
	if probe.code == http.StatusMethodNotAllowed {
		allow := probe.header.Get("Allow")
		w.Header().Set("Allow", allow)
		rest.RefuseField(http.StatusMethodNotAllowed, "method", r.Method, "is not for "+r.URL.Path, allow).Write(w)
		return
	}
	rest.Refuse(http.StatusNotFound, "there is no %s: the API is below %s/", r.URL.Path, BaseURL).Write(w)
}

// discard keeps the header of an answer only.
type discard struct {
	header http.Header
	code   int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(code int)        { d.code = code }
