// Package users authorizes requests, keeps the audit log, and answers requests about users.
package users

import (
	"crypto/sha256"
	"log/slog"
	"net/http"
	"sync/atomic"

	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi/rest"
)

// Options are the dependencies and settings of API. All dependencies but Audit are required.
type Options struct {
	Access        *access.Users              // by name and password
	Audit         *access.Audit              // nil: no audit log
	Loopback      Loopback                   // may use loopback without a token
	Token         string                     // required for every request over TCP; empty: none
	RequireTokens bool                       // require Token, or a token of Access, for every request over TCP
	Hosts         []string                   // Host names that requests without a token may use, in lower case
	Open          []string                   // paths that need no token
	Pattern       func(*http.Request) string // path pattern of a request's operation; "": no such operation
	Reader        *rest.Reader
	Log           *slog.Logger
}

// API authorizes requests, and answers requests about users.
type API struct {
	Options
	logins      *access.Limiter
	origins     origins
	crossOrigin *http.CrossOriginProtection // browsers state the origin of a request; foreign web pages must not change anything
	token       [sha256.Size]byte
	auditFailed atomic.Int64 // the minute in which a failure of the audit log was last logged
}

// New returns an API.
func New(o Options) *API {
	return &API{
		Options: o, logins: access.NewLimiter(), crossOrigin: http.NewCrossOriginProtection(), token: sha256.Sum256([]byte(o.Token)),
	}
}
