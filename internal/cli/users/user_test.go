package users_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"

	"github.com/google/go-cmp/cmp"
)

// TestLogin checks that a login stores a token that no other user can read, that the next command
// sends it, and that a logout removes it.
func TestLogin(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("of before"), 0o644); err != nil { // as the existing loxicmd leaves it
		t.Fatal(err)
	}
	s := clitest.NewServer(t, 200, `{"token":"s3cret-token"}`)
	got := clitest.RunWith(t, file, "ann\nmy password\n", s.WithoutToken("set login")...)
	if got != (clitest.Result{Stdout: "Login Success\n", Stderr: "Enter ID: Enter Password: "}) {
		t.Errorf(`got %+v, want "Login Success\n" on stdout and "Enter ID: Enter Password: " on stderr`, got)
	}
	if want := `POST /netlox/v1/auth/login {"password":"my password","username":"ann"}`; len(s.Requests) != 1 || s.Requests[0] != want {
		t.Errorf("the requests are %q", s.Requests)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v %v, want no error, mode 0600", info.Mode(), err)
	}
	s.Body = `{"version":"1"}`
	if got := clitest.RunWith(t, file, "", s.WithoutToken("get lbversion")...); got.Code != session.ExitOK || s.Auth != "s3cret-token" {
		t.Errorf("%+v with %q", got, s.Auth)
	}
	s.Body = `{"message":"bye"}`
	if got := clitest.RunWith(t, file, "", s.WithoutToken("set logout")...); got != (clitest.Result{Stdout: "Logout Success\n"}) || s.Auth != "s3cret-token" {
		t.Errorf("%+v with %q", got, s.Auth)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the token is still there: %v", err)
	}
	if got := clitest.RunWith(t, file, "given\n", "set", "login", "--provider=manual"); got.Code != session.ExitOK {
		t.Errorf("got %+v, want exit code ExitOK", got)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "given\n" {
		t.Errorf(`got %q %v, want no error, data == "given\n"`, data, err)
	}
	s.Code, s.Body = 401, `{"code":401,"message":"the request has no valid token"}`
	if got := clitest.RunWith(t, file, "", s.WithoutToken("set logout")...); got.Code != session.ExitRefused || !strings.Contains(got.Stderr, "no valid token") {
		t.Errorf(`got %+v, want exit code ExitRefused, "no valid token" on stderr`, got)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("a token that is over is still there: %v", err)
	}
}

// TestLoginReplaces checks that an existing file at the token's path is replaced, never written to.
func TestLoginReplaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, elsewhere := filepath.Join(dir, "token"), filepath.Join(dir, "elsewhere")
	if err := os.Symlink(elsewhere, file); err != nil {
		t.Fatal(err)
	}
	s := clitest.NewServer(t, 200, `{"token":"s3cret-token"}`)
	if got := clitest.RunWith(t, file, "secret\n", s.WithoutToken("set login --user=ann --password-file=-")...); got.Code != session.ExitOK {
		t.Errorf("got %+v, want exit code ExitOK", got)
	}
	if _, err := os.Stat(elsewhere); !os.IsNotExist(err) {
		t.Errorf("the token went through the link: %v", err)
	}
}

func TestLoginRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	s := clitest.NewServer(t, 401, `{"code":401,"message":"user name or password is wrong"}`)
	for _, tc := range []struct {
		args, stdin, message string
		code                 int
	}{
		{"set login", "ann\nx\n", "Error: user name or password is wrong", session.ExitRefused},
		{"set login", "", "no input", session.ExitUsage},
		{"set login", "ann\n", "no input", session.ExitUsage},
		{"set login --provider=google", "", "OAuth2 is not part of this build", session.ExitUsage},
		{"set logout --provider=x", "", `--provider "x" is not supported (allowed: manual, or omit it)`, session.ExitUsage},
		{"set login --user=a --password-file=/nowhere", "", `--password-file "/nowhere" cannot be read: no such file`, session.ExitUsage},
		{"set login --user=a --password-file=-", "\n", "its first line is empty", session.ExitUsage},
		{"set refresh --provider=google", "", "set refresh: OAuth2 is not part of this build", session.ExitUsage},
		{"create user", "", "missing argument", session.ExitUsage},
		{"set user ann", "", "nothing to change", session.ExitUsage},
	} {
		if got := clitest.RunWith(t, file, tc.stdin, s.WithoutToken(tc.args)...); got.Code != tc.code || !strings.Contains(got.Stderr, tc.message) || got.Stdout != "" {
			t.Errorf("%s: got %+v, want exit code %d with %q, and nothing on stdout", tc.args, got, tc.code, tc.message)
		}
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("a token is stored: %v", err)
	}
}

func TestUserCommands(t *testing.T) {
	t.Parallel()
	// The name of user 8 is the id of another one.
	s := clitest.NewServer(t, 200, `[{"id":7,"username":"ann"},{"id":8,"username":"9"},{"id":9,"username":"bob"}]`)
	for _, args := range []string{"create user ann --role=operate", "set user 7 --role=admin", "set user 7 --password", "delete user 7", "delete user 9"} {
		if got := clitest.Run(t, "my password\n", s.Args(args)...); got.Code != session.ExitOK || got.Stdout != "success\n" {
			t.Errorf(`%s: got %+v, want exit code ExitOK, stdout == "success\n"`, args, got)
		}
	}
	if diff := cmp.Diff([]string{
		`POST /netlox/v1/auth/users {"password":"my password","role":"operate","username":"ann"}`,
		`GET /netlox/v1/auth/users`,
		`PUT /netlox/v1/auth/users/7 {"role":"admin"}`,
		`GET /netlox/v1/auth/users`,
		`PUT /netlox/v1/auth/users/7 {"password":"my password"}`,
		`GET /netlox/v1/auth/users`,
		`DELETE /netlox/v1/auth/users/7`,
		`GET /netlox/v1/auth/users`,
		`DELETE /netlox/v1/auth/users/8`,
	}, s.Requests); diff != "" {
		t.Errorf("the requests differ (-want +got):\n%s", diff)
	}
	s = clitest.NewServer(t, 200, `[{"id":3,"username":"ann","role":"view","created_at":"2026-01-02T03:04:05Z"}]`)
	want := "| ID | NAME | ROLE |       CREATED        |\n|----|------|------|----------------------|\n|  3 | ann  | view | 2026-01-02T03:04:05Z |\n"
	if got := clitest.Run(t, "", s.Args("get users")...); got != (clitest.Result{Stdout: want}) {
		t.Errorf("got %+v, want %q on stdout", got, want)
	}
	if got := clitest.Run(t, "", s.Args("delete user bob")...); got.Code != session.ExitRefused || !strings.Contains(got.Stderr, `user "bob" not found`) {
		t.Errorf("got %+v, want exit code ExitRefused, `user \"bob\" not found` on stderr", got)
	}
	if clitest.Run(t, "", s.Args("delete user ann")...); s.Requests[len(s.Requests)-1] != "DELETE /netlox/v1/auth/users/3" {
		t.Errorf("the requests are %q", s.Requests)
	}
}

func TestGetAudit(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200,
		`{"auditAttr":[{"time":"2026-01-02T03:04:05Z","who":"ann","role":"operate","from":"10.0.0.1:5","method":"POST","path":"/x\u001b",`+
			`"objects":["service a","service b"],"result":200,"revision":7},`+
			`{"time":"2026-01-02T03:04:05Z","who":"-","from":"socket","method":"GET","path":"/y","result":401,"error":"no token"}]}`)
	got := clitest.Run(t, "", s.Args("get audit --limit=2")...)
	if got.Code != session.ExitOK || !strings.Contains(got.Stdout, "| ann | operate | 10.0.0.1:5 | POST /x. | service a, service b |    200 |        7 | -        |") ||
		!strings.Contains(got.Stdout, "| -   | -       | socket     | GET /y   | -                    |    401 | -        | no token |") {
		t.Errorf(`got %+v, want exit code ExitOK, "| ann | operate | 10.0.0.1:5 | POST /x. | service a, `+
			`service b | 200 | 7 | - |" on stdout, "| - | - | socket | GET /y | - | 401 | - | no token |" on stdout`,
			got)
	}
	if s.Requests[0] != "GET /netlox/v1/audit?limit=2" {
		t.Errorf("the requests are %q", s.Requests)
	}
}
