package cli_test

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"loxilb/internal/cli"
	"loxilb/internal/cli/session"
	"loxilb/test/clitest"

	"github.com/spf13/cobra"
)

// Weaknesses of the existing loxicmd that must not come back.

// TestHighPort checks that a server can have any port.
func TestHighPort(t *testing.T) {
	t.Parallel()
	var listener net.Listener
	port := 65535
	for ; listener == nil; port-- {
		listener, _ = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)) // Listen chooses another port if it is in use
		if port < 60000 {
			t.Fatal("no port above 60000 is free")
		}
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"lbAttr":[]}`)) }))
	_ = s.Listener.Close()
	s.Listener = listener
	s.Start()
	t.Cleanup(s.Close)
	if got := clitest.Run(t, "", "get", "lb", "-s", "127.0.0.1", "-p", strconv.Itoa(port+1)); got.Code != session.ExitOK || !strings.Contains(got.Stdout, "EXT IP") {
		t.Errorf("port %d: %+v", port+1, got)
	}
}

// TestEveryCommandSaysWhy checks that every command, as in its examples, reports why the server
// refuses and exits with 1, and with 3 without a server. Nothing else is printed.
func TestEveryCommandSaysWhy(t *testing.T) {
	t.Parallel()
	const why = "the reason why"
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("my password\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := clitest.NewServer(t, 503, `{"code":503,"message":"`+why+`","result":"x"}`)
	gone := clitest.Unreachable(t)
	tried := 0
	for _, line := range examples(cli.Root(session.Env{})) {
		if strings.ContainsAny(line, "<>|'\"") || strings.Contains(line, "-f ") || strings.Contains(line, "--lb ") ||
			strings.Contains(line, "ipconfig") || strings.Contains(line, "--per-intf") || strings.Contains(line, "--password-file") {
			continue // needs a shell, or a file
		}
		line = strings.TrimPrefix(line, "loxicmd ")
		if strings.HasPrefix(line, "version") || line == "options" || strings.HasPrefix(line, "completion") ||
			strings.HasPrefix(line, "set login") || strings.HasPrefix(line, "config ") || strings.Contains(line, "--context=") || strings.HasPrefix(line, "support-bundle") {
			continue // uses no server, or another one
		}
		if line == "set user ann --password" || strings.HasPrefix(line, "create user") {
			line += " --password-file=" + password
		}
		tried++
		refused, unreachable := session.ExitRefused, session.ExitUnreachable
		if strings.HasPrefix(line, "verify") {
			refused, unreachable = 2, 2 // verify could not compare
		}
		if got := clitest.Run(t, "", s.Args(line)...); got.Code != refused || !strings.Contains(got.Stderr, why) || got.Stdout != "" {
			t.Errorf("loxicmd %s: %+v", line, got)
		}
		if got := clitest.Run(t, "", gone.Args(line)...); got.Code != unreachable || !strings.Contains(got.Stderr, "cannot reach the server") || got.Stdout != "" {
			t.Errorf("loxicmd %s, without a server: %+v", line, got)
		}
	}
	if tried < 30 {
		t.Errorf("only %d command lines were tried", tried)
	}
}

// examples returns the command lines of the help of all commands.
func examples(c *cobra.Command) (lines []string) {
	for line := range strings.Lines(c.Example) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "loxicmd ") {
			lines = append(lines, line)
		}
	}
	for _, sub := range c.Commands() {
		lines = append(lines, examples(sub)...)
	}
	return lines
}

// TestTokenOfExistingLoxicmd checks that a token file of the existing loxicmd that others can read
// becomes readable by its owner only at the first use.
func TestTokenOfExistingLoxicmd(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("of before\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := clitest.NewServer(t, 200, `{"version":"1"}`)
	if got := clitest.RunWith(t, file, "", s.WithoutToken("get lbversion")...); got.Code != session.ExitOK || s.Auth != "of before" {
		t.Errorf("%+v with %q", got, s.Auth)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v %v, want no error, mode 0600", info.Mode(), err)
	}
	// A file of another user, or something other than a file, is not read.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if got := clitest.RunWith(t, link, "", s.WithoutToken("get lbversion")...); got.Code != session.ExitOK || s.Auth != "" {
		t.Errorf("%+v with %q", got, s.Auth)
	}
}

// TestCertificate checks that a server's certificate is verified, against chosen certificates if
// given, or not at all if requested.
func TestCertificate(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"version":"1"}`)) }))
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	for flag, want := range map[string]int{"--cacert=" + ca: session.ExitOK, "--insecure": session.ExitOK, "--insecure=false": session.ExitUnreachable} {
		got := clitest.Run(t, "", "get", "lbversion", "--protocol=https", "-s", "127.0.0.1", "-p", port, flag)
		if got.Code != want || want != session.ExitOK && !strings.Contains(got.Stderr, "certificate") {
			t.Errorf("%s: got %+v, want exit code %d, and a word about the certificate if it fails", flag, got, want)
		}
	}
}

// TestApplyLosesNothing checks that applying a saved file loses no property of a service.
func TestApplyLosesNothing(t *testing.T) {
	t.Parallel()
	const entry = `{"allowedSources":[{"prefix":"10.0.0.0/8"}],"endpoints":[{"endpointIP":"10.0.0.1","targetPort":80,"weight":7}],"secondaryIPs":[{"secondaryIP":"1.1.1.2"}],` +
		`"serviceArguments":{"block":5,"egress":true,"externalIP":"1.1.1.1","host":"h","inactiveTimeOut":60,"mode":2,"monitor":true,"name":"n",` +
		`"port":80,"portMax":90,"protocol":"tcp","proxyprotocolv2":true,"security":1,"sel":3}}`
	shown := clitest.NewServer(t, 200, `{"lbAttr":[`+entry+`]}`)
	file := filepath.Join(t.TempDir(), "lbconfig.txt")
	got := clitest.Run(t, "", shown.Args("get lb -o json")...)
	if err := os.WriteFile(file, []byte(got.Stdout), 0o600); err != nil || got.Code != session.ExitOK {
		t.Fatalf("got %v %v, want no error, exit code ExitOK", err, got)
	}
	s := clitest.NewServer(t, 200, clitest.Success)
	if got := clitest.Run(t, "", s.Args("apply -l "+file)...); got.Code != session.ExitOK {
		t.Errorf("got %+v, want exit code ExitOK", got)
	}
	if want := `"objects":[{"kind":"Loadbalancer","spec":` + entry + `}]}`; len(s.Requests) != 1 || !strings.HasSuffix(s.Requests[0], want) {
		t.Errorf("sent\n%s, want\n%s", s.Requests, want)
	}
}
