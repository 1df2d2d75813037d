package probe

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/lb"
	"loxilb/test/certtest"
)

// never is longer than a probe takes unless it blocks.
const never = time.Minute

// probeWithFiles probes by TLS with files, which must not block.
func probeWithFiles(t *testing.T, files Files, p lb.Probe) error {
	t.Helper()
	p.Type, p.Timeout = lb.ProbeHTTPS, time.Second
	prober := New(Spec{To: closedPort(netip.MustParseAddr("127.0.0.1")), Probe: p}, &Sockets{}, files)
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), p.Timeout)
		defer cancel()
		_, err := prober.Probe(ctx)
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-time.After(never):
		t.Fatal("the probe does not end")
		return nil
	}
}

// TestFiles checks that only regular PEM files below the directory are used. The evidence does not
// say what a file is; the log does.
func TestFiles(t *testing.T) {
	t.Parallel()
	ca := certtest.NewAuthority(t, "ca")
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret.pem")
	copyFile(t, secret, ca.File(t))
	dir := filepath.Join(t.TempDir(), "probes")
	in := func(name string) string { return filepath.Join(dir, name) }
	large := func(name string) error {
		return errors.Join(os.WriteFile(name, []byte("-----BEGIN CERTIFICATE-----\n"), 0o600), os.Truncate(name, maxFileSize+1))
	}
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(in("folder"), 0o700), unix.Mkfifo(in("pipe"), 0o600),
		unix.Mknod(in("zero"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))), os.WriteFile(in("text"), []byte("well"), 0o600), large(in("large")),
		os.Symlink("/dev/zero", in("to-zero")), os.Symlink(secret, in("to-secret")), os.Symlink("ca", in("to-ca"))); err != nil {
		t.Fatal(err)
	}
	copyFile(t, in("ca"), ca.File(t))
	ca.Issue(t, "loxilb").Write(t, dir, "client")
	ca.Issue(t, "loxilb").Write(t, dir, "other")
	const (
		unreadable = "cannot be probed: the probe's CA file cannot be read"
		noPEM      = "cannot be probed: the probe's CA file is not PEM"
	)
	elsewhere := "cannot be probed: the probe's CA file is not below " + dir
	for _, tc := range []struct {
		p         lb.Probe
		want, log string
	}{
		{lb.Probe{CA: in("ca"), Certificate: in("client.pem"), Key: in("client.key")}, "connection refused", ""},
		{lb.Probe{CA: in("to-ca")}, "connection refused", ""},
		{lb.Probe{CA: in("none")}, unreadable, "no such file"},
		{lb.Probe{CA: in("pipe")}, unreadable, "not a regular file"},
		{lb.Probe{CA: in("zero")}, unreadable, "not a regular file"},
		{lb.Probe{CA: in("folder")}, unreadable, "not a regular file"},
		{lb.Probe{CA: in("to-zero")}, unreadable, "escapes"},
		{lb.Probe{CA: in("to-secret")}, unreadable, "escapes"},
		{lb.Probe{CA: in("large")}, unreadable, "more than 1048576 bytes"},
		{lb.Probe{CA: secret}, elsewhere, secret},
		{lb.Probe{CA: in("../probes/../secret.pem")}, elsewhere, "secret.pem"},
		{lb.Probe{CA: "/dev/zero"}, elsewhere, "/dev/zero"},
		{lb.Probe{CA: in("text")}, noPEM, in("text")},
		{lb.Probe{CA: in("client.key")}, noPEM, in("client.key")},
		{lb.Probe{Certificate: in("client.pem"), Key: secret}, "cannot be probed: the probe's key file is not below " + dir, secret},
		{lb.Probe{Certificate: in("client.pem"), Key: in("pipe")}, "cannot be probed: the probe's key file cannot be read", "not a regular file"},
		{lb.Probe{Certificate: in("text"), Key: in("client.key")}, "cannot be probed: the probe's certificate file is not PEM", in("text")},
		{lb.Probe{Certificate: in("client.pem"), Key: in("other.key")}, "cannot be probed: the probe's key does not match its certificate", "does not match"},
	} {
		var log bytes.Buffer
		err := probeWithFiles(t, Files{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))}, tc.p)
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s %s %s: %v, want %q", tc.p.CA, tc.p.Certificate, tc.p.Key, err, tc.want)
		}
		if errors.Is(err, ErrNotSent) != strings.HasPrefix(tc.want, ErrNotSent.Error()) {
			t.Errorf("error %v counts as the fault of this machine: %v", err, errors.Is(err, ErrNotSent))
		}
		if !strings.Contains(log.String(), tc.log) || tc.log == "" && log.Len() > 0 {
			t.Errorf("the log says %q, want %q", log.String(), tc.log)
		}
	}
}

// TestCompatFiles checks which client certificate an https probe shows: its own, or the existing
// loxilb's, once both files are there.
func TestCompatFiles(t *testing.T) {
	t.Parallel()
	ca := certtest.NewAuthority(t, "ca")
	dir, compat := t.TempDir(), filepath.Join(t.TempDir(), "cert")
	ca.Issue(t, "own").Write(t, dir, "own")
	own := lb.Probe{Type: lb.ProbeHTTPS, Certificate: filepath.Join(dir, "own.pem"), Key: filepath.Join(dir, "own.key")}
	shown := func(s *tlsFiles) string {
		t.Helper()
		c, err := s.config()
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Certificates) == 0 {
			return ""
		}
		return c.Certificates[0].Leaf.DNSNames[0]
	}
	secrets := func(p lb.Probe, compat string) *tlsFiles {
		return newTLSFiles(Spec{To: netip.MustParseAddrPort("[::1]:443"), Probe: p}, Files{Dir: dir, Compat: compat, Log: slog.New(slog.DiscardHandler)})
	}
	s := secrets(lb.Probe{Type: lb.ProbeHTTPS}, compat)
	want := func(what string, s *tlsFiles, name string) {
		t.Helper()
		if got := shown(s); got != name {
			t.Errorf("%s: the probe shows %q, want %q", what, got, name)
		}
	}
	want("no directory", s, "")
	if err := os.Mkdir(compat, 0o700); err != nil {
		t.Fatal(err)
	}
	ca.Issue(t, "existing").Write(t, compat, "issued")
	copyFile(t, filepath.Join(compat, "server.crt"), filepath.Join(compat, "issued.pem"))
	want("no key", s, "")
	copyFile(t, filepath.Join(compat, "server.key"), filepath.Join(compat, "issued.key"))
	want("both files", s, "existing")
	want("its own certificate", secrets(own, compat), "own")
	want("without --compat", secrets(lb.Probe{Type: lb.ProbeHTTPS}, ""), "")
	want("gRPC", secrets(lb.Probe{Type: lb.ProbeGRPC}, compat), "")
}

// TestFilesLoggedOnce checks that an error is logged once, and again only when it changes.
func TestFilesLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	dir := t.TempDir()
	p := lb.Probe{Type: lb.ProbeHTTPS, CA: filepath.Join(dir, "ca")}
	s := newTLSFiles(Spec{To: closedPort(netip.MustParseAddr("::1")), Probe: p}, Files{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for _, want := range []int{1, 1} {
		if _, err := s.config(); err == nil || strings.Count(log.String(), "\n") != want {
			t.Errorf("%v; the log says %q", err, log.String())
		}
	}
	if err := os.WriteFile(p.CA, []byte("well"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.config(); err == nil || strings.Count(log.String(), "\n") != 2 {
		t.Errorf("%v; the log says %q", err, log.String())
	}
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
