package users_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/internal/api/httpapi/users"
	"loxilb/test/apitest"
)

// TestRoles checks that each role has exactly its rights, and that there are none without a token.
func TestRoles(t *testing.T) {
	t.Parallel()
	b, tokens := apitest.Secured(t)
	for _, tc := range []struct {
		request, body string
		least         access.Role
	}{
		{"GET /version", "", access.View},
		{"GET /config/loadbalancer/all", "", access.View},
		{"GET /logs", "", access.View},
		{"GET /status/rates", "", access.View},
		{"GET /status/rates/services", "", access.View},
		{"GET /status/rates/history", "", access.View},
		{"POST /config/loadbalancer", apitest.Demo, access.Operate},
		{"DELETE /config/loadbalancer/all", "", access.Operate},
		{"POST /config/bgp/neigh", "{}", access.Operate},
		{"POST /config/params", `{"logLevel":"info"}`, access.Admin},
		{"POST /config/cors", `{"cors":[]}`, access.Admin},
		{"GET /status/drops", "", access.View},
		{"GET /auth/users", "", access.View},
		{"POST /auth/users", `{"username":"new","password":"12345678"}`, access.Admin},
		{"GET /status/trace", "", access.Admin},
		{"GET /audit", "", access.Admin},
		{"GET /%61udit", "", access.Admin},
		{"DELETE /auth/users/99", "", access.Admin},
		{"POST /auth/token/upgrade", "{}", access.Admin},
	} {
		method, path, _ := strings.Cut(tc.request, " ")
		if w := b.Json("", method, path, tc.body); w.Code != 401 || w.Header().Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s without a token: %d", tc.request, w.Code)
		}
		for name, token := range tokens {
			role, _ := access.ParseRole(name)
			w := b.Json("Bearer "+token, method, path, tc.body)
			if role < tc.least && (w.Code != 403 || !strings.Contains(apitest.ProblemOf(t, w).Message, "needs the role "+tc.least.String())) {
				t.Errorf("%s as %s: %d %s", tc.request, name, w.Code, w.Body)
			}
			if role >= tc.least && (w.Code == 401 || w.Code == 403) {
				t.Errorf("%s as %s: %d %s", tc.request, name, w.Code, w.Body)
			}
		}
	}
	for _, token := range []string{"x", "Bearer ", strings.Repeat("a", 10000), tokens["view"] + "x", tokens["view"][1:]} {
		if w := b.Json(token, "GET", "/version", ""); w.Code != 401 {
			t.Errorf("token %.20q: %d", token, w.Code)
		}
	}
}

// TestWhoami checks that every client gets its own identity, and nothing else.
func TestWhoami(t *testing.T) {
	t.Parallel()
	b, tokens := apitest.Secured(t)
	for token, want := range map[string]string{
		"": `{"name":"","role":"","why":"the request has no valid token`, tokens["view"] + "x": `{"name":"","role":"","why":"the request has no valid token`,
		tokens["view"]: `{"name":"view","role":"view"}`, tokens["admin"]: `{"name":"admin","role":"admin"}`,
	} {
		if w := b.Json(token, "GET", "/auth/whoami", ""); w.Code != 200 || !strings.HasPrefix(w.Body.String(), want) || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("token %.4q: got %d %s, want code 200, a body that begins with %s, and no caching", token, w.Code, w.Body, want)
		}
	}
	if w := b.Json("", "HEAD", "/auth/whoami", ""); w.Code != 200 {
		t.Errorf("HEAD: %d", w.Code)
	}
	if w := b.Json("", "POST", "/auth/whoami", "{}"); w.Code != 401 {
		t.Errorf("POST: %d", w.Code)
	}
}

// TestUserRequests checks that users are created, shown without their passwords, changed and
// deleted, and that users can change only their own password.
func TestUserRequests(t *testing.T) {
	t.Parallel()
	b, tokens := apitest.Secured(t)
	admin, view := tokens["admin"], tokens["view"]
	want := func(code int, token, request, body string) {
		t.Helper()
		method, path, _ := strings.Cut(request, " ")
		if w := b.Json(token, method, path, body); w.Code != code || code == 200 && strings.TrimSpace(w.Body.String()) != `{"result":"Success"}` {
			t.Errorf("%s %s: %d %s, want %d", request, body, w.Code, w.Body, code)
		}
	}
	if w := b.Json(admin, "POST", "/auth/users", `{"username":"ann","password":"12345678","role":"viewer","id":9,"created_at":"x"}`); w.Code != 200 ||
		!strings.Contains(w.Body.String(), `"id":4,"role":"viewer","username":"ann"`) {
		t.Errorf("got %v %v, want code 200, `\"id\":4,\"role\":\"viewer\",\"username\":\"ann\"` in the body",
			w.Code, w.Body)
	}
	bob := b.Json(admin, "POST", "/auth/users", `{"username":"bob","password":"12345678","role":"operate"}`)
	var made v1.User
	if err := json.Unmarshal(bob.Body.Bytes(), &made); err != nil || made.Username != "bob" || made.Role != "operate" ||
		made.CreatedAt == "" || strings.Contains(bob.Body.String(), "12345678") {
		t.Errorf(`got %v %s, want no error, made.Username == "bob", made.Role == "operate", `+
			`made.CreatedAt not empty, no "12345678" in the body`,
			err, bob.Body)
	}
	want(200, admin, fmt.Sprint("DELETE /auth/users/", made.Id), "")
	want(409, admin, "POST /auth/users", `{"username":"ann","password":"12345678"}`)
	want(400, admin, "POST /auth/users", `{"username":"ann b","password":"12345678"}`)
	want(400, admin, "POST /auth/users", `{"username":"bob","password":"1234567"}`)
	want(400, admin, "POST /auth/users", `{"username":"bob","password":"12345678","role":"king"}`)
	want(400, admin, "POST /auth/users", `{"username":"bob"`)
	want(404, admin, "PUT /auth/users/99", `{"role":"admin"}`)
	want(404, admin, "DELETE /auth/users/99", "")
	want(400, admin, "DELETE /auth/users/ann", "")
	w := b.Json(admin, "GET", "/auth/users", "")
	var list []v1.User
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list) != 4 || list[3].Id != 4 ||
		list[3].Username != "ann" || list[3].Role != "viewer" || list[3].CreatedAt == "" ||
		strings.Contains(w.Body.String(), "argon2") {
		t.Errorf(`got %v %s, want no error, 4 elements, list[3].Id == 4, list[3].Username == "ann", `+
			`list[3].Role == "viewer", list[3].CreatedAt not empty, no "argon2" in the body`,
			err, w.Body)
	}
	if w := b.Json(view, "GET", "/auth/users", ""); w.Code != 200 || strings.Count(w.Body.String(), `"username"`) != 1 || !strings.Contains(w.Body.String(), `"username":"view"`) {
		t.Errorf("a user who is not an administrator sees %d %s", w.Code, w.Body)
	}
	want(403, view, "PUT /auth/users/4", `{"password":"12345678"}`)
	want(403, view, "PUT /auth/users/1", `{"password":"12345678","role":"admin"}`)
	want(403, view, "PUT /auth/users/1", `{"username":"root"}`)
	want(403, view, "PUT /auth/users/1", `{"username":"view","password":"87654321","role":"viewer"}`)
	want(403, view, "PUT /auth/users/1", `{"password":"87654321","currentPassword":"guess"}`)
	want(403, admin, "PUT /auth/users/3", `{"password":"87654321"}`)
	if w := b.Json(view, "GET", "/version", ""); w.Code != 200 {
		t.Errorf("a refused change ended the token: %d", w.Code)
	}
	want(200, view, "PUT /auth/users/1", `{"username":"view","password":"87654321","role":"viewer","currentPassword":"`+apitest.Passphrase+`"}`)
	want(401, view, "GET /version", "") // a changed password ends the tokens
	b.Login("view", "87654321")
	operate := tokens["operate"]
	want(200, admin, "PUT /auth/users/2", `{"role":"view"}`)
	want(401, operate, "GET /version", "")
	want(200, admin, "DELETE /auth/users/4", "")
	want(401, "", "POST /auth/login", `{"username":"ann","password":"12345678"}`)
	if w := b.Json(admin, "POST", "/auth/logout", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"message"`) {
		t.Errorf("logout: %d %s", w.Code, w.Body)
	}
	want(401, admin, "GET /version", "")
}

// TestLoginLimit checks that a client that guesses passwords must wait, however many requests it
// sends, and that others can still log in.
func TestLoginLimit(t *testing.T) {
	t.Parallel()
	b, _ := apitest.Secured(t)
	try := func(from, password string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", httpapi.BaseURL+"/auth/login", strings.NewReader(`{"username":"admin","password":"`+password+`"}`))
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		b.Http.ServeHTTP(w, r)
		return w
	}
	begun, guesses := time.Now(), 0
	for try(fmt.Sprintf("10.0.0.1:%d", 1000+guesses), "guess").Code == 401 {
		guesses++
	}
	if most := 5 + int(time.Since(begun)/(10*time.Second)); guesses < 5 || guesses > most {
		t.Errorf("%d guesses in %v, want 5 to %d", guesses, time.Since(begun), most)
	}
	w := try("10.0.0.1:9", apitest.Passphrase)
	if wait := w.Header().Get("Retry-After"); w.Code != 429 || wait == "" || !strings.Contains(apitest.ProblemOf(t, w).Message, "try again in "+wait+" s") {
		t.Errorf("one more, with the right one: %d %v", w.Code, w.Header())
	}
	if w := try("10.0.0.2:9", apitest.Passphrase); w.Code != 200 {
		t.Errorf("a request from another address gets %d %s", w.Code, w.Body)
	}
	if w := try("10.0.0.3:9", strings.Repeat("x", users.MaxLogin)); w.Code != 413 {
		t.Errorf("a body that is too large: %d %s", w.Code, w.Body)
	}
}

// TestLoginLimitOfGuesserWithAccount checks that a guesser is limited although its own logins
// succeed in between, or although it guesses the current password with a stolen token.
func TestLoginLimitOfGuesserWithAccount(t *testing.T) {
	t.Parallel()
	b, tokens := apitest.Secured(t)
	guesses := 0
	login := func(name, password string) int {
		return b.Json("", "POST", "/auth/login", fmt.Sprintf(`{"username":%q,"password":%q}`, name, password)).Code
	}
	for range 6 {
		for range 4 {
			if login("admin", "guess") == 401 {
				guesses++
			}
		}
		login("view", apitest.Passphrase)
	}
	if guesses > 6 {
		t.Errorf("%d guesses", guesses)
	}
	for range 6 {
		if b.Json(tokens["operate"], "PUT", "/auth/users/2", `{"password":"87654321","currentPassword":"guess"}`).Code == 429 {
			return
		}
	}
	t.Error("guesses at the current password are not limited")
}

// TestLoginNotWritten checks that a login with the correct password whose token cannot be stored
// does not count as a failed attempt.
func TestLoginNotWritten(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	b := apitest.New(t, func(o *httpapi.Options) { o.Access = access.Open(dir) })
	try := func() int {
		return b.Json("", "POST", "/auth/login", `{"username":"ann","password":"`+apitest.Passphrase+`"}`).Code
	}
	made := func() error { return os.Mkdir(dir, 0o700) }
	if err := made(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.API.Access.Add(t.Context(), "ann", apitest.Passphrase, access.View); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if code := try(); code != 503 {
			t.Fatalf("without a directory: %d", code)
		}
	}
	if err := made(); err != nil {
		t.Fatal(err)
	}
	if code := try(); code != 200 {
		t.Errorf("with it: %d", code)
	}
}

// TestAudit checks that the audit log has changes and refusals with their users, and no passwords.
func TestAudit(t *testing.T) {
	t.Parallel()
	b, tokens := apitest.Secured(t)
	b.Json(tokens["operate"], "POST", "/config/loadbalancer", apitest.Demo)
	b.Json(tokens["operate"], "POST", "/config/loadbalancer", apitest.Demo) // exists already
	b.Json(tokens["view"], "DELETE", "/config/loadbalancer/all", "")
	b.Json("", "GET", "/config/loadbalancer/all?"+strings.Repeat("x", 5000), "")
	b.Json(tokens["view"], "GET", "/version", "") // changes nothing, and is not logged
	b.Json("", "POST", "/auth/login", `{"username":"admin","password":"guessed it"}`)
	w := b.Json(tokens["admin"], "GET", "/audit?limit=5", "")
	var list v1.AuditList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || strings.Contains(w.Body.String(), "guessed") {
		t.Fatalf(`got %v %v, want no error, no "guessed" in the body`, err, w.Body)
	}
	var got []string
	for _, e := range list.AuditAttr {
		got = append(got, fmt.Sprintf("%s %s %s %d %d %v", e.Who, e.Role, e.Method, e.Result, e.Revision, e.Objects))
		if e.From == "" || len(e.Path) > rest.MaxQuoted+3 || (e.Result >= 400) != (e.Error != "") {
			t.Errorf("got %+v, want an address, a short path, and an error exactly if the request was refused", e)
		}
	}
	if diff := cmp.Diff([]string{
		"operate operate POST 200 1 [service 20.20.20.1:2020/tcp]", "operate operate POST 409 0 []", "view view DELETE 403 0 []", "-  GET 401 0 []", "-  POST 401 0 []",
	}, got); diff != "" {
		t.Errorf("the result differs (-want +got):\n%s", diff)
	}
	for _, limit := range []string{"-1", "10001", "x"} {
		if w := b.Json(tokens["admin"], "GET", "/audit?limit="+limit, ""); w.Code != 400 {
			t.Errorf("limit %s: %d", limit, w.Code)
		}
	}
}

// TestAuditOfUsers checks that the audit log names the user that a request changes, also after it
// was deleted.
func TestAuditOfUsers(t *testing.T) {
	t.Parallel()
	b, tokens := apitest.Secured(t)
	w := b.Json(tokens["admin"], "POST", "/auth/users", `{"username":"ann","password":"12345678","role":"view"}`)
	var user v1.User
	if err := json.Unmarshal(w.Body.Bytes(), &user); err != nil || user.Id == 0 {
		t.Fatalf("got %v %v, want a user", err, w.Body)
	}
	path := fmt.Sprint("/auth/users/", user.Id)
	b.Json(tokens["admin"], "PUT", path, `{"role":"operate"}`)
	b.Json(tokens["operate"], "PUT", path, `{"role":"admin"}`) // not its own
	b.Json(tokens["admin"], "DELETE", path, "")
	list, err := b.API.Audit.Last(4)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, fmt.Sprintf("%s %s %d %v", e.Who, e.Method, e.Result, e.Objects))
	}
	want := []string{"admin POST 200 [user ann]", "admin PUT 200 [user ann]", "operate PUT 403 [user ann]", "admin DELETE 200 [user ann]"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the result differs (-want +got):\n%s", diff)
	}
}

// TestSocketIsRoots checks that the socket needs no token, and that the audit log names its user.
func TestSocketIsRoots(t *testing.T) {
	t.Parallel()
	b, _ := apitest.Secured(t)
	path := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	server, err := b.API.Listen(ctx, transport.Listen{Socket: path})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}, DisableKeepAlives: true}}
	resp, err := client.Post("http://x"+httpapi.BaseURL+"/auth/users", "application/json", strings.NewReader(`{"username":"first","password":"12345678","role":"admin"}`))
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("got %v %v, want no error, code 200", err, resp)
	}
	_ = resp.Body.Close()
	list, err := b.API.Audit.Last(1)
	if err != nil || len(list) != 1 || list[0].Who != "root" || list[0].From != "socket" || list[0].Role != "admin" {
		t.Errorf(`got %v %+v, want no error, 1 element, list[0].Who == "root", `+
			`list[0].From == "socket", list[0].Role == "admin"`,
			err, list)
	}
	if !slices.ContainsFunc(b.API.Access.List(), func(u access.User) bool { return u.Name == "first" }) {
		t.Error("the user is missing")
	}
}

// TestTokenBesideUsers checks that without --userservice a token of a user admits clients that the
// machine's own users and groups do not admit.
func TestTokenBesideUsers(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Peer = func() (uint32, error) { return 987654, nil }
	if _, err := b.API.Access.Add(t.Context(), "ann", apitest.Passphrase, access.View); err != nil {
		t.Fatal(err)
	}
	if w := b.Json("", "GET", "/version", ""); w.Code != 403 {
		t.Errorf("a local user without permission gets code %d, want 403", w.Code)
	}
	token := b.Login("ann", apitest.Passphrase)
	if w := b.Json(token, "GET", "/version", ""); w.Code != 200 {
		t.Errorf("with a token: %d %s", w.Code, w.Body)
	}
	if w := b.Json(token, "POST", "/config/loadbalancer", apitest.Demo); w.Code != 403 {
		t.Errorf("more than its role: %d", w.Code)
	}
}
