// Package users decides who may make a request, keeps the audit log, and answers requests about
// users.
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
	Audit     *access.Audit              // nil: no audit log
	Loopback  Loopback                   // may use loopback without a token
	Token     string                     // asked of every request over TCP; empty: none
	AskTokens bool                       // require Token, or a token of Access, for every request over TCP
	Hosts     []string                   // names by which requests without a token may come, in lower case
	Open      []string                   // paths that need no token
	Pattern   func(*http.Request) string // of a request's operation; "": there is none
	Reader    *rest.Reader
	Log       *slog.Logger
}

// API decides who may make a request, and answers requests about users.
type API struct {
	Options
	logins      *access.Limiter
	origins     origins
	crossOrigin *http.CrossOriginProtection // browsers state the origin of a request; foreign web pages must not change anything
	token       [sha256.Size]byte
	auditFailed atomic.Int64 // the minute of the last log message about it
}

// New makes the area.
func New(o Options) *API {
	return &API{
		Options: o, logins: access.NewLimiter(), crossOrigin: http.NewCrossOriginProtection(), token: sha256.Sum256([]byte(o.Token)),
	}
}
