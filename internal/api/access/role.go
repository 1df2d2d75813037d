// Package access manages the users of the API: passwords, permissions, and an audit log.
package access

import (
	"fmt"
	"net/http"
	"strings"
)

// Role is a user's permissions. A higher role includes all lower ones.
type Role int

// The roles.
const (
	View    Role = iota + 1 // read everything but users and the audit log
	Operate                 // also change objects
	Admin                   // everything
)

// String returns the role's name.
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

// Roles lists the names of roles.
const Roles = "view, operate, admin"

// ParseRole also accepts the existing loxilb's viewer. Empty means view.
func ParseRole(word string) (Role, error) {
	switch strings.ToLower(word) {
	case "", "view", "viewer":
		return View, nil
	case "operate", "operator":
		return Operate, nil
	case "admin":
		return Admin, nil
	}
	return 0, fmt.Errorf("unknown role %q (allowed: %s)", word, Roles)
}

// Needed returns the least role for a request, by its method and its path below the API's base. The
// rule covers future paths: changes outside of /config need an admin.
func Needed(method, path string) Role {
	reads := method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
	switch {
	case within(path, "/auth/logout"), path == "/auth/whoami" && reads, path == "/auth/users" && reads, method == http.MethodPut && within(path, "/auth/users"):
		return View // the handlers allow viewers only their own data and password
	case within(path, "/auth"), within(path, "/audit"), within(path, "/status/trace"): // packets have confidential content
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
