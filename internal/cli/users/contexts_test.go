package users_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"
)

// in returns an environment with a file of contexts.
func in(path string) session.Env {
	return session.Env{TokenFile: path + ".token", Getenv: func(name string) string {
		return map[string]string{"HOME": "/nonexistent", "LOXICMD_CONFIG": path}[name]
	}}
}

// TestContexts checks that a context has all settings to reach a server, and that the current one
// is the default.
func TestContexts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "config.yaml")
	here, there := clitest.NewServer(t, 200, `{"version":"here"}`), clitest.NewServer(t, 200, `{"version":"there"}`)
	do := func(want string, words ...string) {
		t.Helper()
		if got := clitest.RunIn(t, in(path), "s3cret\n", words...); got.Code != session.ExitOK || !strings.Contains(got.Stdout, want) {
			t.Errorf("%q: %+v, want %s", words, got, want)
		}
	}
	do("success", "config", "set-context", "here", "--server="+here.URL, "--token-stdin")
	do("success", "config", "set-context", "there", "--server", strings.TrimPrefix(there.URL, "http://"), "--current")
	do("there", "get", "lbversion")
	do("here", "get", "lbversion", "--context=here")
	if here.Auth != "s3cret" || there.Auth != "" {
		t.Errorf("tokens sent: %q, %q", here.Auth, there.Auth)
	}
	do("success", "config", "use-context", "here")
	do("here", "get", "lbversion")
	do("there", "get", "lbversion", "--server="+there.URL)
	if there.Auth != "" {
		t.Errorf("the token of a context went to another server: %q", there.Auth)
	}
	do("| *       | here  | "+here.URL, "config", "get-contexts")
	do("token: REDACTED", "config", "view")
	do("token: s3cret", "config", "view", "--raw")
	do("there\n", "__complete", "config", "use-context", "t")
	do("here\n", "__complete", "get", "lb", "--context", "h")
	do("success", "config", "set-context", "here", "--insecure")
	do("token: s3cret", "config", "view", "--raw")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want no error, mode 0600", info, err)
	}
	do("success", "config", "delete-context", "here")
	data, err := os.ReadFile(path)
	if diff := cmp.Diff("contexts:\n- name: there\n  server: "+strings.TrimPrefix(there.URL, "http://")+"\n", string(data)); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

// TestContextsRefused checks that errors are one sentence, without a request.
func TestContextsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	const token = "contexts:\n- name: a\n  server: https://127.0.0.1:1\n  token: s3cret\ncurrent-context: a\n"
	for name, content := range map[string]string{
		"open": token, "none": "", "broken": "contexts: 7\n", "unknown": "contexts:\n- name: a\n  colour: red\n",
		"bad": "contexts:\n- name: a\n  server: ftp://x\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(open, 0o640); err != nil { // umask may have cleared bits
		t.Fatal(err)
	}
	for _, tc := range []struct{ file, args, says string }{
		{"open", "get lb", "open contains a token and has mode 0640: others must not read it (chmod 600 " + open + ")"},
		{"open", "config view --raw", "has mode 0640"},
		{"broken", "get lb", "broken is not a context file"},
		{"unknown", "get lb", `unknown field "colour"`},
		{"bad", "get lb", `server of context a: "ftp://x" is not a server address (allowed: http://HOST:PORT`},
		{"none", "get lb --context=b", `context "b" not found, and there is no other`},
		{"none", "config use-context b", `context "b" not found`},
		{"none", "config delete-context b", `context "b" not found`},
		{"none", "config set-context", "missing argument: its name"},
		{"none", "config set-context a --server=x:y", `--server "x:y" is not a server address`},
		{"none", "config set-context a:b/c --server=x --token-stdin", "--token-stdin: the first line of standard input has no token"},
		{"none", "get lb --server=unix:sock", `--server "unix:sock" is not a server address`},
		{"none", "get lb --server=a -p 7", "--server cannot be combined with another flag that names a server"},
		{"none", "get lb --context=a -s 10.0.0.1", "--context cannot be combined with a flag that names a server"},
		{"none", "config", "config needs an object (allowed: delete-context, get-contexts"},
	} {
		got := clitest.RunIn(t, in(filepath.Join(dir, tc.file)), "", strings.Fields(tc.args)...)
		if got.Code != session.ExitUsage || !strings.Contains(got.Stderr, tc.says) || got.Stdout != "" || strings.Contains(got.Stderr, "s3cret") {
			t.Errorf("%s: %+v, want %s", tc.args, got, tc.says)
		}
	}
	// An explicit server needs no file.
	s := clitest.NewServer(t, 200, `{"version":"here"}`)
	if got := clitest.RunIn(t, in(filepath.Join(dir, "broken")), "", s.WithoutToken("get lbversion")...); got.Code != session.ExitOK {
		t.Errorf("got %+v, want exit code ExitOK", got)
	}
}

// TestContextsInDevice checks that a device as the file of contexts is not replaced.
func TestContextsInDevice(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "null")
	if err := syscall.Mknod(path, syscall.S_IFCHR|0o600, 1<<8|3); err != nil { // as /dev/null
		t.Skip("needs root:", err)
	}
	got := clitest.RunIn(t, in(path), "", "config", "set-context", "here", "--server=http://127.0.0.1:1")
	if got.Code == session.ExitOK || !strings.Contains(got.Stderr, "is not a regular file") {
		t.Errorf("got %+v, want a refusal", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Type() != os.ModeDevice|os.ModeCharDevice {
		t.Errorf("the device is %v now, %v", info, err)
	}
}
