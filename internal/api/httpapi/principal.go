package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"time"

	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/internal/control/store"
)

// unknownUser is who is not known.
const unknownUser = "-"

// manual is who has the token of --manualtoken.
const manual = "token"

// principal is who makes a request, and what it has done.
type principal struct {
	by       transport.Way
	name     string
	role     access.Role
	user     int64  // of access.Users; 0: another one
	why      string // it has no role
	stranger bool   // was refused for want of a token, or of rights

	revision uint64
	objects  []string
}

// maxObjectsTold is how many objects an entry of the audit log names.
const maxObjectsTold = 8

// changed notes what the request has changed.
func (p *principal) changed(revision uint64, ids []store.ID) {
	p.revision = revision
	for _, id := range ids[:min(len(ids), maxObjectsTold)] {
		p.objects = append(p.objects, id.Kind+" "+id.Key)
	}
}

// principalKey is where the context of a request keeps who makes it.
type principalKey struct{}

func principalOf(r *http.Request) *principal {
	if p, ok := r.Context().Value(principalKey{}).(*principal); ok {
		return p
	}
	return &principal{name: unknownUser}
}

// identify finds out who makes a request: by the socket that root and the group may open, by the
// token of --manualtoken, by that of a user, or by the user of the machine at the other end of
// loopback. All but those of access.Users are admins, as they were before there were roles.
func (a *API) identify(r *http.Request, who *principal, token [sha256.Size]byte) (p *problem) {
	if who.by == transport.BySocket {
		who.name, who.role = accountName(transport.PeerOf(r)), access.Admin
		return nil
	}
	given := tokenOf(r)
	if got := sha256.Sum256([]byte(given)); a.Token != "" && subtle.ConstantTimeCompare(got[:], token[:]) == 1 {
		// Digests are compared: neither the token's length nor its beginning shows in the time it
		// takes.
		who.name, who.role = manual, access.Admin
		return nil
	}
	if given != "" {
		if u, ok := a.Access.Who(given); ok {
			who.name, who.role, who.user = u.Name, u.Role, u.ID
			return nil
		}
	}
	who.name = unknownUser
	switch {
	case a.asksToken():
		return refuse(http.StatusUnauthorized, "the request has no valid token: send it as Authorization: TOKEN (loxicmd --token), or log in (loxicmd set login)")
	case who.by == transport.ByLoopback:
		who.name, p = a.Users.admit(r)
	}
	who.role = access.Admin
	return p
}

// tokenOf is the token that a request has, with or without the word Bearer before it.
func tokenOf(r *http.Request) string {
	given := r.Header.Get("Authorization")
	if scheme, rest, ok := strings.Cut(given, " "); ok && strings.EqualFold(scheme, "Bearer") {
		given = strings.TrimSpace(rest)
	}
	return given
}

// account writes what a request has changed, or that it was refused, to the audit log.
func (a *API) account(r *http.Request, who *principal, answer *observed) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
	if a.Audit == nil || reads && !who.stranger {
		return
	}
	if _, pattern := a.mux.Handler(r); pattern == "" && !who.stranger {
		return // nothing is there that it could have changed, and such requests would fill the log
	}
	e := access.Entry{
		Who: who.name, Role: who.role.String(), From: r.RemoteAddr, Method: r.Method, Path: shorten(r.URL.RequestURI()), Objects: who.objects,
		Result: answer.code, Error: shorten(answer.why), Revision: who.revision, Stranger: who.stranger,
	}
	if who.by == transport.BySocket {
		e.From = "socket"
	}
	if e.Who == "" {
		e.Who = unknownUser
	}
	err := a.Audit.Write(e)
	if minute := time.Now().Unix() / 60; err != nil && a.auditFailed.Swap(minute) != minute {
		a.Log.Error("a request could not be written to the audit log", "error", err, "who", e.Who, "method", e.Method, "path", e.Path, "result", e.Result)
	}
}

// maxTold is how many bytes of a path, or of a sentence, an entry has.
const maxTold = 512

func shorten(s string) string {
	if len(s) <= maxTold {
		return s
	}
	return strings.ToValidUTF8(s[:maxTold], "") + "..."
}
