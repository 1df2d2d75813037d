package httpapi

import (
	"context"
	"net/http"

	"loxilb/internal/api/httpapi/compat"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/httpapi/transport"
)

// Listen opens all sockets, or none, with an error.
func (a *API) Listen(ctx context.Context, l transport.Listen) (*transport.Server, error) {
	return transport.Open(ctx, l, transport.Parts{Handler: a.Handler, Shutdown: a.streams.Close, Log: a.o.Log})
}

// Handler returns the handler of requests from one transport.
func (a *API) Handler(by transport.Kind) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ow := rest.NewWriter(w, a.streams.Stall, a.unread)
		who := &rest.Principal{By: by}
		ctx, end := rest.Linger(r.Context())
		defer end()
		r = compat.Cleaned(r).WithContext(rest.WithPrincipal(ctx, who))
		defer func() {
			a.o.Observe(r.Method, ow.Code)
			a.WriteAudit(r, who, ow)
			ow.Extend() // the rest of the answer is in the server's buffer
		}()
		if a.AnswerOrigin(ow, r) {
			return
		}
		if p := a.Admit(r, who); p != nil {
			who.Stranger = true
			if p.Body.Code == http.StatusUnauthorized {
				ow.Header().Set("WWW-Authenticate", "Bearer")
			}
			ow.Header().Set("Connection", "close") // a client without access must not occupy a connection
			p.Write(ow)
			return
		}
		if remote, ok := a.o.Store.Remote(); ok {
			objects.SetAge(ow.Header(), &remote)
		}
		a.route(ow, r)
	})
}

// route replies in JSON to requests without a handler, too.
func (a *API) route(w http.ResponseWriter, r *http.Request) {
	if a.pattern(r) != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	// The mux reports whether the path exists with other methods; its plain-text answer is
	// discarded.
	probe := &discard{header: make(http.Header)}
	a.mux.ServeHTTP(probe, r)
	if probe.code == http.StatusMethodNotAllowed {
		allow := probe.header.Get("Allow")
		w.Header().Set("Allow", allow)
		rest.RefuseField(http.StatusMethodNotAllowed, "method", r.Method, "is not for "+r.URL.Path, allow).Write(w)
		return
	}
	rest.Refuse(http.StatusNotFound, "%s not found: the API is below %s/", r.URL.Path, rest.BaseURL).Write(w)
}

// discard keeps only the header of an answer.
type discard struct {
	header http.Header
	code   int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(code int)        { d.code = code }
