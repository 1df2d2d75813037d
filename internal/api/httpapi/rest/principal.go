package rest

import (
	"context"
	"net/http"
	"strings"

	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi/transport"
)

// UnknownUser is the name of an unknown caller.
const UnknownUser = "-"

// Principal is the caller of a request, and the record of its changes.
type Principal struct {
	By       transport.Kind
	Name     string
	Role     access.Role
	User     int64  // number in access.Users; 0: none
	Why      string // why it has no role
	Stranger bool   // it was refused for lack of a token or of rights

	Revision uint64
	Objects  []string
}

// principalKey is the context key of a request's caller.
type principalKey struct{}

// WithPrincipal returns a context with the caller of a request.
func WithPrincipal(ctx context.Context, who *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, who)
}

// PrincipalOf returns the caller of a request.
func PrincipalOf(r *http.Request) *Principal {
	if p, ok := r.Context().Value(principalKey{}).(*Principal); ok {
		return p
	}
	return &Principal{Name: UnknownUser}
}

// TokenOf returns a request's token, with or without the prefix Bearer.
func TokenOf(r *http.Request) string {
	given := r.Header.Get("Authorization")
	if scheme, rest, ok := strings.Cut(given, " "); ok && strings.EqualFold(scheme, "Bearer") {
		given = strings.TrimSpace(rest)
	}
	return given
}
