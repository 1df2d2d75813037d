// Package users decides who may make a request of the API, keeps the audit log, and answers
// requests about users.
package users

import (
	"crypto/sha256"
	"log/slog"
	"net/http"
	"sync/atomic"

	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi/rest"
)

// Options are the parts that the area stands on. All but Audit are needed.
type Options struct {
	Access    *access.Users              // by name and password
	Audit     *access.Audit              // nil: no account is kept
	Loopback  Loopback                   // may use loopback without a token
	Token     string                     // asked of every request over TCP; empty: none
	AskTokens bool                       // of every request over TCP: Token, or one of Access
	Hosts     []string                   // names by which requests without a token may come, in lower case
	Open      []string                   // paths that anybody may read
	Pattern   func(*http.Request) string // of the operation that a request asks for; "": there is none
	Reader    *rest.Reader
	Log       *slog.Logger
}

// API decides who may make a request, and answers requests about users.
type API struct {
	Options
	logins      *access.Limiter
	origins     origins
	crossOrigin *http.CrossOriginProtection // browsers say where a request comes from; a web page has nothing to change here
	token       [sha256.Size]byte
	auditFailed atomic.Int64 // the minute of which the log says so
}

// New makes the area.
func New(o Options) *API {
	return &API{
		Options: o, logins: access.NewLimiter(), crossOrigin: http.NewCrossOriginProtection(), token: sha256.Sum256([]byte(o.Token)),
	}
}
