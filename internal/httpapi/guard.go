package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// door is a way in: who comes through it is trusted in another way.
type door int

const (
	doorLoopback door = iota // TCP of this machine: whoever is on it, but no web page
	doorNetwork              // TCP of other machines
	doorSocket               // UNIX socket: whoever the file's mode lets in
)

// Handler answers requests that came over TCP on loopback; Serve has the other ways in too.
func (a *API) Handler() http.Handler { return a.handler(doorLoopback) }

func (a *API) handler(d door) http.Handler {
	// Browsers say where a request comes from; a web page has nothing to change here.
	origin := http.NewCrossOriginProtection()
	token := sha256.Sum256([]byte(a.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ow := &observed{ResponseWriter: w, code: http.StatusOK}
		defer func() { a.Observe(r.Method, ow.code) }()
		switch {
		case origin.Check(r) != nil:
			refuse(http.StatusForbidden, "requests of web pages are not answered").write(ow)
		case d == doorLoopback && a.Token == "" && !localHost(r.Host):
			// A page whose name was made to resolve to 127.0.0.1 is of the same origin, but for the name.
			refuseField(http.StatusForbidden, "Host", r.Host, "is not a name of this machine", "an IP address or localhost").write(ow)
		case d != doorSocket && a.Token != "" && !authorized(r, token):
			ow.Header().Set("WWW-Authenticate", "Bearer")
			refuse(http.StatusUnauthorized, "the request has no valid token: send it as Authorization: TOKEN (loxicmd --token)").write(ow)
		default:
			a.route(ow, r)
		}
	})
}

// authorized compares digests, so that neither the token's length nor its beginning shows in the time it takes.
func authorized(r *http.Request, want [sha256.Size]byte) bool {
	given := r.Header.Get("Authorization")
	if scheme, rest, ok := strings.Cut(given, " "); ok && strings.EqualFold(scheme, "Bearer") {
		given = strings.TrimSpace(rest)
	}
	got := sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// localHost takes an address, which no page can make its own, and localhost.
func localHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if host == "" || strings.EqualFold(host, "localhost") {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// route answers what no handler is for in JSON too.
func (a *API) route(w http.ResponseWriter, r *http.Request) {
	if _, pattern := a.mux.Handler(r); pattern != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	// The mux knows whether the path exists with other methods; its answer in plain text is not shown.
	probe := &discard{header: make(http.Header)}
	a.mux.ServeHTTP(probe, r)
	if probe.code == http.StatusMethodNotAllowed {
		allow := probe.header.Get("Allow")
		w.Header().Set("Allow", allow)
		refuseField(http.StatusMethodNotAllowed, "method", r.Method, "is not for "+r.URL.Path, allow).write(w)
		return
	}
	refuse(http.StatusNotFound, "there is no %s: the API is below %s/", r.URL.Path, BaseURL).write(w)
}

// observed remembers the code of an answer.
type observed struct {
	http.ResponseWriter
	code int
}

func (o *observed) WriteHeader(code int) {
	o.code = code
	o.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController reach the connection.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// discard keeps the header of an answer only.
type discard struct {
	header http.Header
	code   int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(code int)        { d.code = code }
