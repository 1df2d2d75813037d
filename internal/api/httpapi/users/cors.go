package users

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
)

// MaxOrigins bounds the allowed origins.
const MaxOrigins = 256

// origins are the allowed origins of web pages. As in the existing loxilb, a restart removes them.
type origins struct {
	mu   sync.RWMutex
	list []string // sorted
}

func (o *origins) has(origin string) bool {
	if origin == "" {
		return false
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	_, found := slices.BinarySearch(o.list, strings.ToLower(origin))
	return found
}

func (o *origins) all() []string {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return append([]string{}, o.list...)
}

// add adds all origins, or none if there would be too many.
func (o *origins) add(more []string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := slices.Concat(o.list, more)
	slices.Sort(list)
	if list = slices.Compact(list); len(list) > MaxOrigins {
		return false
	}
	o.list = list
	return true
}

func (o *origins) remove(origin string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	i, found := slices.BinarySearch(o.list, origin)
	if found {
		o.list = slices.Delete(slices.Clone(o.list), i, i+1)
	}
	return found
}

// parseOrigin parses a browser's header Origin: a scheme, a host, and a port unless it is the
// scheme's.
func parseOrigin(text string) (string, *rest.Problem) {
	text = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(text)), "/")
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Hostname() == "*" || u.Scheme+"://"+u.Host != text {
		return "", rest.RefuseField(http.StatusBadRequest, "cors", text, "is not an origin", "https://NAME[:PORT] or http://NAME[:PORT]")
	}
	return text, nil
}

// GetCors replies with the allowed origins of web pages.
func (a *API) GetCors(w http.ResponseWriter, _ *http.Request) {
	rest.JSON(w, v1.CorsList{CorsAttr: a.origins.all()})
}

// CreateCors allows further origins of web pages.
func (a *API) CreateCors(w http.ResponseWriter, r *http.Request) {
	entry, p := rest.DecodeLenient(a.Reader, w, r, rest.Unmarshal[v1.CorsEntry])
	if p != nil {
		p.Write(w)
		return
	}
	var list []string
	for _, text := range entry.Cors {
		origin, p := parseOrigin(text)
		if p != nil {
			p.Write(w)
			return
		}
		list = append(list, origin)
	}
	if !a.origins.add(list) {
		rest.Refuse(http.StatusBadRequest, "there would be more than %d origins: delete some first", MaxOrigins).Write(w)
		return
	}
	rest.Success(w)
}

// DeleteCors removes an origin from the allowed ones.
func (a *API) DeleteCors(w http.ResponseWriter, _ *http.Request, text string) {
	origin, p := parseOrigin(text)
	if p != nil {
		p.Write(w)
		return
	}
	if !a.origins.remove(origin) {
		rest.RefuseField(http.StatusNotFound, "cors", origin, "is not in the list", "").Write(w)
		return
	}
	rest.Success(w)
}

// AnswerOrigin lets pages of an allowed origin read the response, and itself answers preflight
// requests of browsers.
func (a *API) AnswerOrigin(w http.ResponseWriter, r *http.Request) (done bool) {
	origin := r.Header.Get("Origin")
	if !a.origins.has(origin) {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "ETag, WWW-Authenticate")
	h.Add("Vary", "Origin")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, If-Match, If-None-Match")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}
