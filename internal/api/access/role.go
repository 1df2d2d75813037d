// Package access keeps the users of the API with their passwords, their permissions, and a log of
// what was done.
package access

import (
	"fmt"
	"net/http"
	"strings"
)

// Role is what a user may do. A higher role includes all lower ones.
type Role int

// The roles.
const (
	View    Role = iota + 1 // read everything but users and the audit log
	Operate                 // change what is balanced, too
	Admin                   // everything
)

// String returns the role's word.
func (r Role) String() string {
	switch r {
	case View:
		return "view"
	case Operate:
		return "operate"
	case Admin:
		return "admin"
	}
	return ""
}

// Roles is what may be written for one.
const Roles = "view, operate, admin"

// ParseRole takes the contract's viewer, too. Nothing is view.
func ParseRole(word string) (Role, error) {
	switch strings.ToLower(word) {
	case "", "view", "viewer":
		return View, nil
	case "operate", "operator":
		return Operate, nil
	case "admin":
		return Admin, nil
	}
	return 0, fmt.Errorf("role %q is not known (allowed: %s)", word, Roles)
}

// Needed returns the least role that may make a request, by its method and its path below the API's
// base. What a later kind of path needs is decided by where it is: changes outside of /config are
// the admin's.
func Needed(method, path string) Role {
	reads := method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
	switch {
	case within(path, "/auth/logout"), path == "/auth/whoami" && reads, path == "/auth/users" && reads, method == http.MethodPut && within(path, "/auth/users"):
		return View // of oneself, and one's own password: the handlers see to that
	case within(path, "/auth"), within(path, "/audit"), within(path, "/status/trace"): // packets are what people say to each other
		return Admin
	case reads:
		return View
	case within(path, "/config/cors"), within(path, "/config/params"):
		return Admin
	case within(path, "/config"):
		return Operate
	}
	return Admin
}

func within(path, folder string) bool {
	rest, ok := strings.CutPrefix(path, folder)
	return ok && (rest == "" || rest[0] == '/')
}
