package transport

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/test/certtest"
)

// parts returns handlers that answer every request.
func parts() Parts {
	return Parts{
		Handler:  func(Kind) http.Handler { return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}) },
		Shutdown: func() {}, Log: slog.New(slog.DiscardHandler),
	}
}

func TestServe(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	t.Parallel()
	dir := t.TempDir()
	cert, key := certtest.SelfSigned(t, time.Now().Add(time.Hour)).Write(t, dir, "lb")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := Listen{
		Plain: netip.MustParseAddrPort("127.0.0.1:0"), TLS: netip.MustParseAddrPort("127.0.0.1:0"),
		CertFile: cert, KeyFile: key, Socket: filepath.Join(dir, "run", "s"), SocketGroup: 4242,
	}
	srv, err := Open(ctx, l, parts())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx) }()

	info, err := os.Stat(l.Socket)
	if err != nil || info.Mode().Perm() != 0o660 || info.Sys().(*syscall.Stat_t).Gid != 4242 {
		t.Errorf("socket: %v %v", info, err)
	}
	addrs := srv.Addrs()
	unix := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", l.Socket)
	}
	insecure := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the test made the certificate
	for url, tr := range map[string]*http.Transport{
		"http://" + addrs[0].String():  {},
		"https://" + addrs[1].String(): {TLSClientConfig: insecure},
		"http://loxilb":                {DialContext: unix},
	} {
		resp, err := (&http.Client{Transport: tr}).Get(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if resp.StatusCode != 200 {
			t.Errorf("%s: got %s, want code 200", url, resp.Status)
		}
		_ = resp.Body.Close()
		tr.CloseIdleConnections()
	}
	if _, err := Open(ctx, Listen{Plain: addrs[0].(*net.TCPAddr).AddrPort()}, parts()); err == nil || !strings.Contains(err.Error(), "choose another one by --port") {
		t.Errorf("a port in use: %v", err)
	}
	if _, err := Open(ctx, Listen{Socket: l.Socket}, parts()); err == nil {
		t.Error("a socket in use was replaced")
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Serve did not end")
	}
}

func TestListenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]Listen{
		"a file":           {Socket: file},
		"no certificate":   {TLS: netip.MustParseAddrPort("127.0.0.1:0"), CertFile: file, KeyFile: file},
		"address of none":  {Plain: netip.MustParseAddrPort("192.0.2.1:1")},
		"no directory":     {Socket: filepath.Join(file, "s")},
		"two in one place": {Plain: netip.MustParseAddrPort("127.0.0.1:0"), Socket: file},
	} {
		if _, err := Open(t.Context(), l, parts()); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	// The socket of a killed daemon is taken over.
	stale := filepath.Join(dir, "stale")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	srv, err := Open(t.Context(), Listen{Socket: stale}, parts())
	if err != nil {
		t.Fatal(err)
	}
	srv.close()
	srv, err = Open(t.Context(), Listen{Socket: stale}, parts())
	if err != nil {
		t.Fatal(err)
	}
	defer srv.close()
	if info, err := os.Stat(stale); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a socket that no group may use: %v %v", info, err)
	}
}

// TestSocketIsBornClosed checks that the socket's mode never admits others, even right after bind:
// it is bound with a mode for its owner only.
func TestSocketIsBornClosed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch) //nolint:errcheck // of a test
	if _, err := unix.InotifyAddWatch(watch, filepath.Dir(path), unix.IN_ATTRIB); err != nil {
		t.Fatal(err)
	}
	ln, err := listenUnix(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() //nolint:errcheck // of a test
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != ownerMode {
		t.Errorf("got %v %v, want no error, info.Mode().Perm() == ownerMode", info, err)
	}
	if n, err := unix.Read(watch, make([]byte, 4096)); err != unix.EAGAIN {
		t.Errorf("the mode was changed after the socket was made: %d %v", n, err)
	}
}
