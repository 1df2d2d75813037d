package users

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"time"

	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/httpapi/transport"
)

// manualTokenName is the name of the caller with the token of --manualtoken.
const manualTokenName = "token"

// identify identifies the caller of a request: by the UNIX socket, which root and the group may
// open; by the token of --manualtoken; by the token of a user; or by the local user at the other
// end of a loopback connection. All callers other than users of access.Users are admins.
func (a *API) identify(r *http.Request, who *rest.Principal) (p *rest.Problem) {
	if who.By == transport.BySocket {
		who.Name, who.Role = accountName(transport.PeerOf(r)), access.Admin
		return nil
	}
	given := rest.TokenOf(r)
	if got := sha256.Sum256([]byte(given)); a.Token != "" && subtle.ConstantTimeCompare(got[:], a.token[:]) == 1 {
		// Digests are compared, so the time reveals neither the token's length nor its beginning.
		who.Name, who.Role = manualTokenName, access.Admin
		return nil
	}
	if given != "" {
		if u, ok := a.Access.UserOf(given); ok {
			who.Name, who.Role, who.User = u.Name, u.Role, u.ID
			return nil
		}
	}
	who.Name = rest.UnknownUser
	switch {
	case a.requiresToken():
		return rest.Refuse(http.StatusUnauthorized, "the request has no valid token: send it as Authorization: TOKEN (loxicmd --token), or log in (loxicmd set login)")
	case who.By == transport.ByLoopback:
		who.Name, p = a.Loopback.admit(r)
	}
	who.Role = access.Admin
	return p
}

// WriteAudit writes a request's changes, or its refusal, to the audit log.
func (a *API) WriteAudit(r *http.Request, who *rest.Principal, answer *rest.Writer) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
	if a.Audit == nil || reads && !who.Stranger {
		return
	}
	if a.Pattern(r) == "" && !who.Stranger {
		return // unknown paths change nothing, and would fill the log
	}
	e := access.Entry{
		Who: who.Name, Role: who.Role.String(), From: r.RemoteAddr, Method: r.Method, Path: rest.Shorten(r.URL.RequestURI()), Objects: who.Objects,
		Result: answer.Code, Error: rest.Shorten(answer.Why), Revision: who.Revision, Stranger: who.Stranger,
	}
	if who.By == transport.BySocket {
		e.From = "socket"
	}
	if e.Who == "" {
		e.Who = rest.UnknownUser
	}
	err := a.Audit.Write(e)
	if minute := time.Now().Unix() / 60; err != nil && a.auditFailed.Swap(minute) != minute {
		a.Log.Error("a request could not be written to the audit log", "error", err, "who", e.Who, "method", e.Method, "path", e.Path, "result", e.Result)
	}
}
