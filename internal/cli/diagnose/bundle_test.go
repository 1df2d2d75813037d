package diagnose_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/test/clitest"
)

// planted has a secret in each form that the daemon's responses could have, and a client's address.
const planted = `{"token":"p1anted","lbAttr":[{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"probereq":"Authorization: p1anted","proberesp":"p1anted","quic":["0:6:8F95f09245765f80256934e50c66207f"]},
"endpoints":[{"endpointIP":"31.31.31.1"}]}],"otlp":{"headers":{"x-api-key":"p1anted"}},"users":[{"name":"ann","passwordHash":"$2a$10$p1antedp1anted"}],
"logs":["time=x msg=\"Bearer p1anted-p1anted\" client=7.7.7.7:4000 vip=20.20.20.1 password=p1anted","url https://ann:p1anted@host/"],
"key":"-----BEGIN PRIVATE KEY-----\np1anted\n-----END PRIVATE KEY-----","literal":"x fr0mfile x","ctAttr":[{"servName":"web","protocol":"tcp","conntrackState":"est","sourceIP":"7.7.7.7"}]}`

// unpack returns a bundle's files by name.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	packed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(packed); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		out[name] = string(text)
	}
}

// TestBundle checks that the bundle has all parts and no secret, that only its owner can read it,
// and that no existing file is overwritten.
func TestBundle(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, planted)
	dir := t.TempDir()
	file, token := filepath.Join(dir, "x.tar.gz"), filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("fr0mfile\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := clitest.RunWith(t, token, "", s.Args("support-bundle -o "+file)...); got.Code != 0 || !strings.Contains(got.Stdout, "x.tar.gz has ") {
		t.Fatalf(`got %+v, want exit code 0, "x.tar.gz has " on stdout`, got)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("got %v %v, want no error, mode 0600", info.Mode(), err)
	}
	parts := unpack(t, file)
	for name, text := range parts {
		for _, secret := range []string{"p1anted", "fr0mfile", "8F95f09245765f80256934e50c66207f"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has a secret: %s", name, text)
			}
		}
	}
	for name, words := range map[string]string{
		"objects/services.json": `"externalIP":"20.20.20.1"`, "state/log.json": `client=[address]:4000 vip=20.20.20.1`, "state/connections.json": `"of": "web tcp est"`,
		"machine/kernel.txt": "== /proc/version", "network/links.txt": "lo:", "README": "Client addresses are replaced", "MANIFEST": "objects/export.json",
		"checks/verify.json": "20.20.20.1",
	} {
		if !strings.Contains(parts[name], words) {
			t.Errorf("%q is not in %s: %.300s", words, name, parts[name])
		}
	}
	before, _ := os.ReadFile(file)
	if got := clitest.Run(t, "", s.Args("support-bundle -o "+file)...); got.Code != 1 || !strings.Contains(got.Stderr, "already exists") {
		t.Errorf(`got %+v, want exit code 1, "already exists" on stderr`, got)
	}
	if after, _ := os.ReadFile(file); string(after) != string(before) {
		t.Error("the file was written over")
	}
	second := filepath.Join(dir, "second.tar.gz")
	s.Close()
	if got := clitest.Run(t, "", s.Args("support-bundle --with-addresses -o "+second)...); got.Code != 0 ||
		!strings.Contains(got.Stdout, "could not be collected") || !strings.Contains(got.Stdout, "it contains client addresses") {
		t.Errorf("without a daemon: %+v", got)
	}
	parts = unpack(t, second)
	if !strings.Contains(parts["MANIFEST"], "daemon/version.json") || !strings.Contains(parts["MANIFEST"], "failed: ") ||
		parts["checks/doctor.json"] == "" || !strings.Contains(parts["README"], "CLIENT ADDRESSES") {
		t.Errorf("without a daemon: %s", parts["MANIFEST"])
	}
}
