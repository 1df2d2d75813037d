package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// runWith runs a command line whose token is in a file of the test's.
func runWith(t *testing.T, tokenFile, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := Main(t.Context(), Env{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, TokenFile: tokenFile}, args)
	return result{code, out.String(), errs.String()}
}

// withoutToken makes a command line for the server that names no token.
func (s *server) withoutToken(args string) []string {
	return append(strings.Fields(args), "-s", "127.0.0.1", "-p", s.URL[strings.LastIndex(s.URL, ":")+1:])
}

// Whoever logs in has a token that nobody else can read, which the next command sends, and which logging out takes away.
func TestLogin(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("of before"), 0o644); err != nil { // as the contract's loxicmd has left it
		t.Fatal(err)
	}
	s := newServer(t, 200, `{"token":"s3cret-token"}`)
	got := runWith(t, file, "ann\nmy password\n", s.withoutToken("set login")...)
	if got != (result{ExitOK, "Login Success\n", "Enter ID: Enter Password: "}) {
		t.Errorf("%+v", got)
	}
	if want := `POST /netlox/v1/auth/login {"password":"my password","username":"ann"}`; len(s.requests) != 1 || s.requests[0] != want {
		t.Errorf("asked %q", s.requests)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	s.body = `{"version":"1"}`
	if got := runWith(t, file, "", s.withoutToken("get lbversion")...); got.code != ExitOK || s.auth != "s3cret-token" {
		t.Errorf("%+v with %q", got, s.auth)
	}
	s.body = `{"message":"bye"}`
	if got := runWith(t, file, "", s.withoutToken("set logout")...); got != (result{ExitOK, "Logout Success\n", ""}) || s.auth != "s3cret-token" {
		t.Errorf("%+v with %q", got, s.auth)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the token is still there: %v", err)
	}
	if got := runWith(t, file, "given\n", "set", "login", "--provider=manual"); got.code != ExitOK {
		t.Errorf("%+v", got)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "given\n" {
		t.Errorf("%q %v", data, err)
	}
	s.code, s.body = 401, `{"code":401,"message":"the request has no valid token"}`
	if got := runWith(t, file, "", s.withoutToken("set logout")...); got.code != ExitRefused || !strings.Contains(got.stderr, "no valid token") {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("a token that is over is still there: %v", err)
	}
}

// A file that somebody has put where the token goes is replaced, never written into.
func TestLoginReplaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, elsewhere := filepath.Join(dir, "token"), filepath.Join(dir, "elsewhere")
	if err := os.Symlink(elsewhere, file); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, 200, `{"token":"s3cret-token"}`)
	if got := runWith(t, file, "secret\n", s.withoutToken("set login --user=ann --password-file=-")...); got.code != ExitOK {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(elsewhere); !os.IsNotExist(err) {
		t.Errorf("the token went through the link: %v", err)
	}
}

func TestLoginRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	s := newServer(t, 401, `{"code":401,"message":"user name or password is wrong"}`)
	for _, tc := range []struct {
		args, stdin, message string
		code                 int
	}{
		{"set login", "ann\nx\n", "user name or password is wrong", ExitRefused},
		{"set login", "", "nothing was written", ExitUsage},
		{"set login", "ann\n", "nothing was written", ExitUsage},
		{"set login --provider=google", "", "OAuth2 is not part of this build", ExitUsage},
		{"set logout --provider=x", "", `--provider "x" is neither left out nor manual`, ExitUsage},
		{"set login --user=a --password-file=/nowhere", "", "open /nowhere", ExitUsage},
		{"set login --user=a --password-file=-", "\n", "there is nothing in its first line", ExitUsage},
		{"set refresh --provider=google", "", "set refresh: OAuth2 is not part of this build", ExitUsage},
		{"create user", "", "an argument is missing", ExitUsage},
		{"set user ann", "", "what of it?", ExitUsage},
	} {
		if got := runWith(t, file, tc.stdin, s.withoutToken(tc.args)...); got.code != tc.code || !strings.Contains(got.stderr, tc.message) || got.stdout != "" {
			t.Errorf("%s: %+v", tc.args, got)
		}
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("there is a token: %v", err)
	}
}

func TestUserCommands(t *testing.T) {
	t.Parallel()
	s := newServer(t, 200, success)
	for _, args := range []string{"create user ann --role=operate", "set user 7 --role=admin", "set user 7 --password", "delete user 7"} {
		if got := run(t, "my password\n", s.at(args)...); got.code != ExitOK || got.stdout != "success\n" {
			t.Errorf("%s: %+v", args, got)
		}
	}
	if diff := cmp.Diff([]string{
		`POST /netlox/v1/auth/users {"password":"my password","role":"operate","username":"ann"}`,
		`PUT /netlox/v1/auth/users/7 {"role":"admin"}`,
		`PUT /netlox/v1/auth/users/7 {"password":"my password"}`,
		`DELETE /netlox/v1/auth/users/7`,
	}, s.requests); diff != "" {
		t.Error(diff)
	}
	s = newServer(t, 200, `[{"id":3,"username":"ann","role":"view","created_at":"2026-01-02T03:04:05Z"}]`)
	want := "| ID | NAME | ROLE |       CREATED        |\n|----|------|------|----------------------|\n|  3 | ann  | view | 2026-01-02T03:04:05Z |\n"
	if got := run(t, "", s.at("get users")...); got != (result{ExitOK, want, ""}) {
		t.Errorf("%+v", got)
	}
	if got := run(t, "", s.at("delete user bob")...); got.code != ExitRefused || !strings.Contains(got.stderr, `there is no user "bob"`) {
		t.Errorf("%+v", got)
	}
	if run(t, "", s.at("delete user ann")...); s.requests[len(s.requests)-1] != "DELETE /netlox/v1/auth/users/3" {
		t.Errorf("asked %q", s.requests)
	}
}

func TestGetAudit(t *testing.T) {
	t.Parallel()
	s := newServer(t, 200, `{"auditAttr":[{"time":"2026-01-02T03:04:05Z","who":"ann","role":"operate","from":"10.0.0.1:5","method":"POST","path":"/x\u001b","objects":["service a","service b"],"result":200,"revision":7},`+
		`{"time":"2026-01-02T03:04:05Z","who":"-","from":"socket","method":"GET","path":"/y","result":401,"error":"no token"}]}`)
	got := run(t, "", s.at("get audit --limit=2")...)
	if got.code != ExitOK || !strings.Contains(got.stdout, "| ann | operate | 10.0.0.1:5 | POST /x. | service a, service b |    200 |        7 | -        |") ||
		!strings.Contains(got.stdout, "| -   | -       | socket     | GET /y   | -                    |    401 | -        | no token |") {
		t.Errorf("%+v", got)
	}
	if s.requests[0] != "GET /netlox/v1/audit?limit=2" {
		t.Errorf("asked %q", s.requests)
	}
}
