package users

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi/rest"
)

// loginPath is the path of logins, which needs no token.
const loginPath = "/auth/login"

// whoamiPath is the path that reports the caller's identity, also to callers without one.
const whoamiPath = "/auth/whoami"

// loginWait bounds how long a login waits for other password checks.
const loginWait = 5 * time.Second

// Login issues a token to a user.
func (a *API) Login(w http.ResponseWriter, r *http.Request) {
	who := rest.PrincipalOf(r)
	who.Name = rest.UnknownUser
	body, p := readLogin(w, r)
	if p != nil {
		who.Stranger = true
		p.Write(w)
		return
	}
	from, name := sourceAddr(r), body.Username
	if wait := a.logins.Try(from, name); wait > 0 {
		who.Stranger = true
		seconds := int(math.Ceil(wait.Seconds()))
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
		rest.Refuse(http.StatusTooManyRequests, "too many failed logins: try again in %d s", seconds).Write(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), loginWait)
	defer cancel()
	token, user, err := a.Access.Login(ctx, body.Username, body.Password, a.logins.Knows(from, name))
	if err != nil {
		if !errors.Is(err, access.ErrLogin) {
			a.logins.Uncount(from, name) // the password was not checked, or was right
		}
		who.Stranger = true
		accessProblem(err).Write(w)
		return
	}
	a.logins.Succeeded(from, name)
	who.Name, who.Role, who.User = user.Name, user.Role, user.ID
	w.Header().Set("Cache-Control", "no-store")
	rest.JSON(w, v1.LoginToken{Token: token})
}

// MaxLogin is the maximum size of the body of a login.
const MaxLogin = 4 << 10

// readLogin reads the body of a login, which has its own small limit: clients without a token must
// not block the API.
func readLogin(w http.ResponseWriter, r *http.Request) (*v1.User, *rest.Problem) {
	r.Body = http.MaxBytesReader(w, r.Body, MaxLogin)
	data, p := rest.ReadBody(w, r, nil)
	if p != nil {
		return nil, p
	}
	return rest.Unmarshal[v1.User](data)
}

// sourceAddr returns the source of a request, or the zero address for the UNIX socket.
func sourceAddr(r *http.Request) netip.Addr {
	ap, _ := netip.ParseAddrPort(r.RemoteAddr)
	return ap.Addr()
}

// Logout revokes the token of the request.
func (a *API) Logout(w http.ResponseWriter, r *http.Request) {
	token := rest.TokenOf(r)
	if _, known := a.Access.UserOf(token); !known {
		rest.Refuse(http.StatusBadRequest, "the request has no token of a user that could be revoked").Write(w)
		return
	}
	if err := a.Access.Logout(token); err != nil {
		accessProblem(err).Write(w)
		return
	}
	rest.JSON(w, v1.Message{Message: "User logged out successfully"})
}

// GetWhoami replies with the user of the request and its rights, so a page can offer what the user
// may do.
func (a *API) GetWhoami(w http.ResponseWriter, r *http.Request) {
	who := rest.PrincipalOf(r)
	w.Header().Set("Cache-Control", "no-store")
	if who.Role == 0 {
		rest.JSON(w, v1.Whoami{Why: who.Why})
		return
	}
	rest.JSON(w, v1.Whoami{Name: who.Name, Role: who.Role.String()})
}

// GetUsers replies with the users, without their passwords; users other than admins see only
// themselves.
func (a *API) GetUsers(w http.ResponseWriter, r *http.Request) {
	who, out := rest.PrincipalOf(r), []v1.User{}
	for _, u := range a.Access.List() {
		if who.Role < access.Admin && who.User != u.ID {
			continue
		}
		out = append(out, userAnswer(&u))
	}
	rest.JSON(w, out)
}

// userAnswer returns a user in the format of the contract, without the password.
func userAnswer(u *access.User) v1.User {
	role := u.Role.String()
	if u.Role == access.View {
		role = "viewer"
	}
	return v1.User{Id: u.ID, Username: u.Name, Role: role, CreatedAt: u.Created.Format(time.RFC3339)}
}

// CreateUser creates a user.
func (a *API) CreateUser(w http.ResponseWriter, r *http.Request) {
	body, role, p := a.decodeUser(w, r)
	if p != nil {
		p.Write(w)
		return
	}
	user, err := a.Access.Add(r.Context(), body.Username, body.Password, role)
	if err != nil {
		accessProblem(err).Write(w)
		return
	}
	a.recordUser(r, user.ID)
	rest.JSON(w, userAnswer(&user))
}

// recordUser adds the user that a request creates or changes to its entry in the audit log: numbers
// of deleted users have no names.
func (a *API) recordUser(r *http.Request, id int64) {
	for _, u := range a.Access.List() {
		if u.ID == id {
			rest.PrincipalOf(r).Objects = []string{"user " + u.Name}
		}
	}
}

// UpdateUser changes a user. Users other than admins can change only their own password.
func (a *API) UpdateUser(w http.ResponseWriter, r *http.Request, id int64) {
	body, role, p := a.decodeUser(w, r)
	if p != nil {
		p.Write(w)
		return
	}
	if body.Role == "" {
		role = 0 // unchanged
	}
	a.recordUser(r, id)
	who := rest.PrincipalOf(r)
	if who.Role < access.Admin {
		own := who.User == id && (body.Username == "" || body.Username == who.Name) && (role == 0 || role == who.Role)
		if !own {
			who.Stranger = true
			rest.Refuse(http.StatusForbidden, "user %s has the role %s, and may change only its own password", who.Name, who.Role).Write(w)
			return
		}
	}
	if body.Password != "" && who.User == id {
		if p := a.checkCurrentPassword(r, who, body.CurrentPassword); p != nil {
			p.Write(w)
			return
		}
	}
	if err := a.Access.Update(r.Context(), id, body.Username, body.Password, role); err != nil {
		accessProblem(err).Write(w)
		return
	}
	rest.Success(w)
}

// checkCurrentPassword requires the current password to change that of the user's own account: a
// stolen token must not lock its owner out. Failures count as failed logins.
func (a *API) checkCurrentPassword(r *http.Request, who *rest.Principal, current string) *rest.Problem {
	const field = "currentPassword"
	if current == "" {
		return rest.RefuseField(http.StatusForbidden, field, "", "is missing", "your current password")
	}
	from := sourceAddr(r)
	if wait := a.logins.Try(from, who.Name); wait > 0 {
		return rest.Refuse(http.StatusTooManyRequests, "too many failed logins: try again in %d s", int(math.Ceil(wait.Seconds())))
	}
	ctx, cancel := context.WithTimeout(r.Context(), loginWait)
	defer cancel()
	err := a.Access.CheckPassword(ctx, who.User, current)
	switch {
	case err == nil:
		a.logins.Succeeded(from, who.Name)
		return nil
	case errors.Is(err, access.ErrLogin):
		who.Stranger = true
		return rest.RefuseField(http.StatusForbidden, field, "***", "is wrong", "your current password")
	}
	a.logins.Uncount(from, who.Name)
	return accessProblem(err)
}

func (a *API) decodeUser(w http.ResponseWriter, r *http.Request) (*v1.User, access.Role, *rest.Problem) {
	body, p := rest.Decode(a.Reader, w, r, rest.Unmarshal[v1.User])
	if p != nil {
		return nil, 0, p
	}
	role, err := access.ParseRole(body.Role)
	if err != nil {
		return nil, 0, rest.RefuseField(http.StatusBadRequest, "role", body.Role, "is not known", access.Roles)
	}
	return body, role, nil
}

// DeleteUser deletes a user.
func (a *API) DeleteUser(w http.ResponseWriter, r *http.Request, id int64) {
	a.recordUser(r, id)
	if err := a.Access.Delete(id); err != nil {
		accessProblem(err).Write(w)
		return
	}
	rest.Success(w)
}

// accessProblem converts errors of package access to problems with their codes.
func accessProblem(err error) *rest.Problem {
	for _, known := range []struct {
		err  error
		code int
	}{
		{access.ErrLogin, http.StatusUnauthorized},
		{access.ErrInvalid, http.StatusBadRequest},
		{access.ErrNotFound, http.StatusNotFound},
		{access.ErrExists, http.StatusConflict},
		{access.ErrLimit, http.StatusBadRequest},
	} {
		if errors.Is(err, known.err) {
			return rest.Refuse(known.code, "%v", err)
		}
	}
	return rest.Refuse(http.StatusServiceUnavailable, "%v", err)
}

const (
	defaultAudit = 100
	maxAudit     = 10000
)

// GetAudit replies with the newest entries of the audit log.
func (a *API) GetAudit(w http.ResponseWriter, _ *http.Request, params v1.GetAuditParams) {
	limit := params.Limit
	if limit == 0 {
		limit = defaultAudit
	}
	if limit < 1 || limit > maxAudit {
		rest.RefuseField(http.StatusBadRequest, "limit", strconv.Itoa(limit), "is out of range", "1 to "+strconv.Itoa(maxAudit)).Write(w)
		return
	}
	out := v1.AuditList{AuditAttr: []v1.AuditEntry{}}
	if a.Audit != nil {
		list, err := a.Audit.Last(limit)
		if err != nil {
			rest.Refuse(http.StatusServiceUnavailable, "%v", err).Write(w)
			return
		}
		for _, e := range list {
			out.AuditAttr = append(out.AuditAttr, v1.AuditEntry{
				Time: e.Time, Who: e.Who, Role: e.Role, From: e.From, Method: e.Method, Path: e.Path, Objects: e.Objects,
				Result: e.Result, Error: e.Error, Revision: e.Revision, Unsaid: e.Unrecorded,
			})
		}
	}
	rest.JSON(w, out)
}
