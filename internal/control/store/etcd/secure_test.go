package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"loxilb/internal/control/store"
	"loxilb/test/certtest"
)

const patience = 20 * time.Second

// authority issues certificates, and writes them to files of a directory.
type authority struct {
	*certtest.Authority
	t   *testing.T
	dir string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{Authority: certtest.NewAuthority(t, "authority"), t: t, dir: t.TempDir()}
	a.Write(t, a.dir, "ca")
	return a
}

// issue writes NAME.pem and NAME.key, and returns the certificate.
func (a *authority) issue(name string) *x509.Certificate {
	a.t.Helper()
	pair := a.Issue(a.t, name, "127.0.0.1")
	pair.Write(a.t, a.dir, name)
	return pair.Leaf
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// startEtcd starts a server that asks for certificates of clients, and returns its address.
func (a *authority) startEtcd() string {
	a.t.Helper()
	var addresses [2]string
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		a.must(err)
		addresses[i] = l.Addr().String()
		a.must(l.Close())
	}
	cmd := exec.Command("etcd", "--data-dir="+a.file("data"), "--log-level=error", "--unsafe-no-fsync",
		"--listen-client-urls=https://"+addresses[0], "--advertise-client-urls=https://"+addresses[0], "--cert-file="+a.file("server.pem"), "--key-file="+a.file("server.key"),
		"--client-cert-auth", "--trusted-ca-file="+a.file("ca.pem"),
		"--listen-peer-urls=http://"+addresses[1], "--initial-advertise-peer-urls=http://"+addresses[1], "--initial-cluster=default=http://"+addresses[1])
	cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH=arm64")
	a.must(cmd.Start())
	a.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return addresses[0]
}

// addUser creates a user of the server with access to a prefix, and makes the server require
// passwords.
func (a *authority) addUser(s *Store, name, password, prefix string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + s.Servers[0]}, TLS: s.files.config(), Logger: zap.NewNop()})
	a.must(err)
	defer c.Close()
	_, err = c.UserAdd(ctx, "root", "of the test")
	a.must(err)
	_, err = c.UserGrantRole(ctx, "root", "root")
	a.must(err)
	_, err = c.RoleAdd(ctx, name)
	a.must(err)
	_, err = c.RoleGrantPermission(ctx, name, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
	a.must(err)
	_, err = c.UserAdd(ctx, name, password)
	a.must(err)
	_, err = c.UserGrantRole(ctx, name, name)
	a.must(err)
	_, err = c.AuthEnable(ctx)
	a.must(err)
}

// TestSecure checks TLS, client certificates and passwords with a server, and the errors if they
// are wrong. A renewed certificate is used without a restart.
func TestSecure(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skip("etcd is not installed (apt install etcd-server)")
	}
	a, other := newAuthority(t), newAuthority(t)
	a.issue("server")
	a.issue("client")
	other.issue("client")
	right := Config{Servers: []string{a.startEtcd()}, Prefix: "/test", TLS: true, CA: a.file("ca.pem"), Cert: a.file("client.pem"), Key: a.file("client.key")}
	first := a.open(right)
	a.eventually(func() error { return put(first, "before", "1") })
	a.addUser(first, "node", "secret", "/test/")
	right.User, right.Password = "node", "secret"
	for _, one := range []struct {
		want string
		edit func(*Config)
	}{
		{"", func(*Config) {}},
		{"authentication failed", func(c *Config) { c.Password = "wrong" }},
		{"permission denied", func(c *Config) { c.User, c.Password = "", "" }},
		{"permission denied", func(c *Config) { c.Prefix = "/elsewhere" }},
		{"certificate signed by unknown authority", func(c *Config) { c.CA = other.file("ca.pem") }},
		{"does not accept this node's certificate", func(c *Config) { c.Cert, c.Key = other.file("client.pem"), other.file("client.key") }},
		{"does not accept this node's certificate", func(c *Config) { c.Cert, c.Key = "", "" }},
	} {
		c := right
		one.edit(&c)
		err := put(a.open(c), "key", "value")
		if one.want == "" && err != nil || one.want != "" && (err == nil || !strings.Contains(err.Error(), one.want)) {
			t.Errorf("want %q: %v", one.want, err)
		}
	}
	a.watches(right)
	renewed := a.open(right)
	leaf := a.issue("client")
	if got, err := renewed.files.config().GetClientCertificate(&tls.CertificateRequestInfo{}); err != nil || !bytes.Equal(got.Certificate[0], leaf.Raw) {
		t.Errorf("a renewed certificate is not used: %v", err)
	}
	a.must(put(renewed, "renewed", "1"))
	a.renewsCA(right, other)
}

// renewsCA checks that a replaced CA file is used without a restart, and that the previous one
// stays in effect if the file is damaged.
func (a *authority) renewsCA(right Config, other *authority) {
	a.t.Helper()
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		a.must(err)
		return b
	}
	c := right
	c.CA = a.file("renewed-ca.pem")
	a.must(os.WriteFile(c.CA, read(other.file("ca.pem")), 0o600))
	s := a.open(c)
	if err := put(s, "renewed-ca", "1"); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		a.t.Errorf("with another CA: %v", err)
	}
	a.must(os.WriteFile(c.CA, read(right.CA), 0o600))
	a.eventually(func() error { return put(s, "renewed-ca", "1") })
	s = a.open(c)
	a.must(os.WriteFile(c.CA, []byte("half a cert"), 0o600))
	a.must(put(s, "damaged-ca", "1"))
}

func (a *authority) open(c Config) *Store {
	a.t.Helper()
	s, err := New(c)
	a.must(err)
	a.t.Cleanup(func() { _ = s.Close() })
	return s
}

// put writes an entry that does not exist.
func put(s *Store, path, value string) error {
	_, ok, err := s.Write(context.Background(), []store.RemoteEntry{{Path: path, Value: []byte(value)}})
	if err == nil && !ok {
		return errors.New("the entry exists")
	}
	return err
}

func (a *authority) eventually(do func() error) {
	a.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := do()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			a.t.Fatalf("after %v: %v", patience, err)
		}
	}
}

// watches checks that a node sees the change of another node.
func (a *authority) watches(c Config) {
	a.t.Helper()
	one, two := a.open(c), a.open(c)
	revision, err := one.Read(a.t.Context(), func(store.RemoteEntry) {})
	a.must(err)
	seen := make(chan string, 1)
	ended := errors.New("seen")
	go func() {
		_ = one.Watch(a.t.Context(), revision, func(list []store.RemoteEntry) error {
			seen <- list[0].Path
			return ended
		})
	}()
	a.must(put(two, "watched", "1"))
	select {
	case path := <-seen:
		if path != "watched" {
			a.t.Errorf("the watch has seen %q", path)
		}
	case <-time.After(patience):
		a.t.Error("the watch sees nothing")
	}
}
