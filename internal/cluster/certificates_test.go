package cluster

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/lb/report"
	"loxilb/test/certtest"
)

// certifiedNodes are nodes with certificates.
type certifiedNodes struct {
	*fleet
	names []string
	stops []func()
}

func newCertifiedNodes(t *testing.T, n int, by *certtest.Authority) *certifiedNodes {
	t.Helper()
	f := &certifiedNodes{fleet: &fleet{nodes: newNodes(t, n), t: t}}
	for i := range n {
		f.names, f.files, f.tables = append(f.names, fmt.Sprintf("node%d", i)), append(f.files, t.TempDir()), append(f.tables, newTable())
		f.replace(i, by.Cert, by)
		f.running, f.stops = append(f.running, nil), append(f.stops, nil)
		f.launch(i)
	}
	f.exchanges()
	return f
}

// launch starts a node.
func (f *certifiedNodes) launch(i int) {
	f.t.Helper()
	f.running[i], f.stops[i] = f.start(i, f.tables[i], func(c *Config) {
		var err error
		if c.Credentials, err = transport.CertFiles(f.path(i, "ca"), f.path(i, "cert"), f.path(i, "key")); err != nil {
			f.t.Fatal(err)
		}
		c.oneWayTime = 500 * time.Millisecond
	})
}

func (f *certifiedNodes) path(i int, name string) string { return filepath.Join(f.files[i], name) }

// replace replaces the authorities that a node accepts, and if by is not nil its certificate.
func (f *certifiedNodes) replace(i int, accepts []byte, by *certtest.Authority) {
	f.t.Helper()
	files := map[string][]byte{"ca": accepts}
	if by != nil {
		pair := by.Issue(f.t, f.names[i])
		files["cert"], files["key"] = pair.Cert, pair.Key
	}
	for name, data := range files {
		if err := os.WriteFile(f.path(i, name), data, 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
}

// settle waits until nodes have read their files twice.
func (f *certifiedNodes) settle(i int) {
	f.t.Helper()
	cert, err := os.ReadFile(f.path(i, "cert"))
	if err != nil {
		f.t.Fatal(err)
	}
	block, _ := pem.Decode(cert)
	eventually(f.t, "the node does not read its certificate", func() bool {
		return bytes.Equal(f.running[i].Credentials.Config().Certificates[0].Certificate[0], block.Bytes)
	})
}

// accepts waits until a node accepts certificates of an authority, or no longer does.
func (f *certifiedNodes) accepts(i int, by *certtest.Authority, want bool) {
	f.t.Helper()
	shown := tls.ConnectionState{PeerCertificates: []*x509.Certificate{by.Issue(f.t, "any").Leaf}}
	eventually(f.t, "the node does not read its authorities", func() bool {
		return (f.running[i].Credentials.Config().VerifyConnection(shown) == nil) == want
	})
}

// TestAuthorityRotation checks that nodes go on while their authority is replaced, as
// docs/cluster.md says: all accept both, get new certificates, and then accept the new one only.
func TestAuthorityRotation(t *testing.T) {
	t.Parallel()
	before, after := certtest.NewAuthority(t, "before"), certtest.NewAuthority(t, "after")
	f := newCertifiedNodes(t, 3, before)
	for i := range f.files {
		f.replace(i, slices.Concat(before.Cert, after.Cert), nil)
		f.exchanges()
	}
	for i := range f.files {
		f.accepts(i, after, true)
	}
	for i := range f.files {
		f.replace(i, slices.Concat(before.Cert, after.Cert), after)
		f.settle(i)
		f.exchanges()
	}
	for i := range f.files {
		f.replace(i, after.Cert, nil)
		f.exchanges()
	}
	for i := range f.files {
		f.accepts(i, before, false)
	}
	f.exchanges()
}

// TestOneSided checks a node whose new certificate no other one accepts: it gets the reason, still
// knows its own address, and the others show that it sends nothing. When it starts again, it
// announces no VIPs.
func TestOneSided(t *testing.T) {
	t.Parallel()
	before, after := certtest.NewAuthority(t, "before"), certtest.NewAuthority(t, "after")
	f := newCertifiedNodes(t, 2, before)
	const refused = "the peer does not accept this node's certificate"
	isRefused := func() bool {
		list := f.running[0].Status().Peers
		return len(list) == 1 && list[0].State == report.PeerRefused && strings.Contains(list[0].Reason, refused)
	}
	f.replace(0, before.Cert, after)
	f.settle(0)
	eventually(t, "the node does not say why it is refused", isRefused)
	eventually(t, "the other node does not show that it gets nothing", func() bool {
		p := f.running[1].Status().Peers[0]
		return strings.Contains(p.Reason, "it sends no connections to this node")
	})
	f.stops[0]()
	f.launch(0)
	eventually(t, "the node announces VIPs although it is refused", func() bool {
		return strings.Contains(f.running[0].HeldReason(), refused)
	})
}
