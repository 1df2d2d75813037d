// Package clitest runs loxicmd's command lines against a server that always gives the same answer.
package clitest

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"loxilb/internal/cli"
	"loxilb/internal/cli/session"
	"loxilb/internal/host/build"
)

// Success is the contract's answer to a change.
const Success = `{"result":"Success"}`

// Result is the result of a run of loxicmd.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Run runs a command line.
func Run(t testing.TB, stdin string, args ...string) Result {
	t.Helper()
	return RunWith(t, "", stdin, args...)
}

// RunWith runs a command line with its token in a file of the test.
func RunWith(t testing.TB, tokenFile, stdin string, args ...string) Result {
	t.Helper()
	return RunIn(t, session.Env{TokenFile: tokenFile}, stdin, args...)
}

// RunIn runs a command line in an environment.
func RunIn(t testing.TB, env session.Env, stdin string, args ...string) Result {
	t.Helper()
	var out, errs bytes.Buffer
	env.Build, env.Stdin, env.Stdout, env.Stderr = build.Info{Version: "1.2.3", Commit: "0123abc", Go: "go1.26"}, strings.NewReader(stdin), &out, &errs
	code := cli.Main(t.Context(), env, args)
	return Result{code, out.String(), errs.String()}
}

// Server gives the same answer to every request, and records the requests.
type Server struct {
	*httptest.Server
	Code     int
	Body     string
	Requests []string
	Auth     string // Authorization of the last request
}

// NewServer starts a server that runs until the test ends.
func NewServer(t testing.TB, code int, body string) *Server {
	t.Helper()
	s := &Server{Code: code, Body: body}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// Unreachable returns a server that refuses connections. Its port is in use until the test is over,
// so no server of another test gets it.
func Unreachable(t testing.TB) *Server {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprint("http://127.0.0.1:", address.(*unix.SockaddrInet4).Port)
	return &Server{Server: &httptest.Server{URL: url}}
}

// ServeHTTP answers.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	s.Requests = append(s.Requests, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(data)))
	s.Auth = r.Header.Get("Authorization")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(s.Code)
	_, _ = io.WriteString(w, s.Body)
}

// Args returns a command line for the server.
func (s *Server) Args(args string) []string {
	return append(s.WithoutToken(args), "--token=s3cret")
}

// WithoutToken returns a command line for the server without a token.
func (s *Server) WithoutToken(args string) []string {
	u, err := url.Parse(s.URL)
	if err != nil {
		panic(err) // httptest made it
	}
	return append(strings.Fields(args), "-s", u.Hostname(), "-p", u.Port())
}

// Lines passes on lines as they are printed.
type Lines struct{ Out chan string }

// Write sends the lines to Out.
func (l Lines) Write(b []byte) (int, error) {
	l.Out <- string(b)
	return len(b), nil
}

var update = flag.Bool("update", false, "write the output into testdata")

// Golden runs command lines one after the other, and compares what they print with
// testdata/NAME.txt.
func Golden(t *testing.T, s *Server, name string, lines ...string) {
	t.Helper()
	var got strings.Builder
	for _, args := range lines {
		r := Run(t, "", s.Args(args)...)
		if r.Code != session.ExitOK && r.Code != session.ExitNo || r.Stderr != "" {
			t.Fatalf("%s: got %+v, want exit code ExitOK or exit code ExitNo, nothing on stderr", args, r)
		}
		got.WriteString("$ loxicmd " + args + "\n" + r.Stdout + "\n")
	}
	path := filepath.Join("testdata", name+".txt")
	if *update || os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
}

// Answer returns the content of testdata/NAME.json.
func Answer(t testing.TB, name string) string {
	t.Helper()
	answer, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}
