package cluster

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/lb/report"
)

// authority certifies nodes.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	file []byte // PEM
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var der []byte
	der, a.key = a.sign(a.cert)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, a.file = cert, encodePEM("CERTIFICATE", der)
	return a
}

// sign makes a key, and a certificate for it.
func (a *authority) sign(template *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	by := a.key
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), by)
	if err != nil {
		a.t.Fatal(err)
	}
	return der, key
}

// certify returns a certificate of a node, and its key: PEM.
func (a *authority) certify(node string) (cert, key []byte) {
	a.t.Helper()
	der, private := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: node}, DNSNames: []string{node}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(20 * 24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return encodePEM("CERTIFICATE", der), encodePEM("PRIVATE KEY", secret)
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// certified is nodes with certificates.
type certified struct {
	*fleet
	names []string
	stops []func()
}

func newCertified(t *testing.T, n int, by *authority) *certified {
	t.Helper()
	f := &certified{fleet: &fleet{nodes: newNodes(t, n), t: t}}
	for i := range n {
		f.names, f.files, f.tables = append(f.names, fmt.Sprintf("node%d", i)), append(f.files, t.TempDir()), append(f.tables, newTable())
		f.replace(i, by.file, by)
		f.running, f.stops = append(f.running, nil), append(f.stops, nil)
		f.launch(i)
	}
	f.exchanges()
	return f
}

// launch starts a node.
func (f *certified) launch(i int) {
	f.t.Helper()
	f.running[i], f.stops[i] = f.start(i, f.tables[i], func(c *Config) {
		var err error
		if c.Credentials, err = transport.CertFiles(f.path(i, "ca"), f.path(i, "cert"), f.path(i, "key")); err != nil {
			f.t.Fatal(err)
		}
		c.oneWayTime = 500 * time.Millisecond
	})
}

func (f *certified) path(i int, name string) string { return filepath.Join(f.files[i], name) }

// replace replaces the authorities that a node accepts, and if by is not nil its certificate.
func (f *certified) replace(i int, accepts []byte, by *authority) {
	f.t.Helper()
	files := map[string][]byte{"ca": accepts}
	if by != nil {
		files["cert"], files["key"] = by.certify(f.names[i])
	}
	for name, data := range files {
		if err := os.WriteFile(f.path(i, name), data, 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
}

// settle waits until nodes have read their files twice.
func (f *certified) settle(i int) {
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
func (f *certified) accepts(i int, by *authority, want bool) {
	f.t.Helper()
	file, _ := by.certify("any")
	block, _ := pem.Decode(file)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		f.t.Fatal(err)
	}
	shown := tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
	eventually(f.t, "the node does not read its authorities", func() bool {
		return (f.running[i].Credentials.Config().VerifyConnection(shown) == nil) == want
	})
}

// TestAuthorityRotation checks that nodes go on while their authority is replaced, as
// docs/cluster.md says: all accept both, get new certificates, and then accept the new one only.
func TestAuthorityRotation(t *testing.T) {
	t.Parallel()
	before, after := newAuthority(t, "before"), newAuthority(t, "after")
	f := newCertified(t, 3, before)
	for i := range f.files {
		f.replace(i, slices.Concat(before.file, after.file), nil)
		f.exchanges()
	}
	for i := range f.files {
		f.accepts(i, after, true)
	}
	for i := range f.files {
		f.replace(i, slices.Concat(before.file, after.file), after)
		f.settle(i)
		f.exchanges()
	}
	for i := range f.files {
		f.replace(i, after.file, nil)
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
	before, after := newAuthority(t, "before"), newAuthority(t, "after")
	f := newCertified(t, 2, before)
	const refused = "the peer does not accept this node's certificate"
	isRefused := func() bool {
		list := f.running[0].Status().Peers
		return len(list) == 1 && list[0].State == report.PeerRefused && strings.Contains(list[0].Reason, refused)
	}
	f.replace(0, before.file, after)
	f.settle(0)
	eventually(t, "the node does not say why it is refused", isRefused)
	eventually(t, "the other node does not show that it gets nothing", func() bool {
		p := f.running[1].Status().Peers[0]
		return strings.Contains(p.Reason, "it sends no connections to this node")
	})
	f.stops[0]()
	f.launch(0)
	eventually(t, "the node announces VIPs although it is refused", func() bool {
		return strings.Contains(f.running[0].Held(), refused)
	})
}
