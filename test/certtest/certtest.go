// Package certtest issues certificates for tests: ECDSA P-256, for servers and clients, valid
// from an hour ago.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// lifetime is the validity of certificates. It is longer than the time before expiry in which nodes
// log warnings.
const lifetime = 30 * 24 * time.Hour

// Pair is a certificate with its key.
type Pair struct {
	Cert, Key []byte // PEM
	Leaf      *x509.Certificate
}

// Write writes NAME.pem and NAME.key, and returns their paths.
func (p Pair) Write(t testing.TB, dir, name string) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	must(t, os.WriteFile(cert, p.Cert, 0o600))
	must(t, os.WriteFile(key, p.Key, 0o600))
	return cert, key
}

// TLS returns the pair as a certificate for tls.Config.
func (p Pair) TLS(t testing.TB) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	must(t, err)
	return c
}

// SelfSigned returns a certificate for names and addresses that no authority has signed.
func SelfSigned(t testing.TB, until time.Time, names ...string) Pair {
	t.Helper()
	key := newKey(t)
	c := newTemplate(t, time.Now().Add(-time.Hour), until, names)
	return sign(t, c, c, key, key)
}

// Authority issues certificates.
type Authority struct {
	Pair
	key *ecdsa.PrivateKey
}

// NewAuthority returns an authority with the given name.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	key := newKey(t)
	c := &x509.Certificate{
		SerialNumber: newSerial(t), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	return &Authority{Pair: sign(t, c, c, key, key), key: key}
}

// Pool returns a pool that trusts the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Leaf)
	return pool
}

// File writes the certificate of the authority to a file of its own, and returns its path.
func (a *Authority) File(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(path, a.Cert, 0o600))
	return path
}

// Issue returns a certificate for names and addresses.
func (a *Authority) Issue(t testing.TB, names ...string) Pair {
	t.Helper()
	return a.IssueFor(t, time.Now().Add(-time.Hour), time.Now().Add(lifetime), names...)
}

// IssueFor returns a certificate for names and addresses, valid for a period.
func (a *Authority) IssueFor(t testing.TB, from, until time.Time, names ...string) Pair {
	t.Helper()
	c := newTemplate(t, from, until, names)
	return sign(t, c, a.Leaf, newKey(t), a.key)
}

func newTemplate(t testing.TB, from, until time.Time, names []string) *x509.Certificate {
	t.Helper()
	c := &x509.Certificate{
		SerialNumber: newSerial(t), NotBefore: from, NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for i, name := range names {
		if i == 0 {
			c.Subject.CommonName = name
		}
		if ip := net.ParseIP(name); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, name)
		}
	}
	return c
}

// sign returns the certificate of a key, signed by an authority's key.
func sign(t testing.TB, c, parent *x509.Certificate, key, by *ecdsa.PrivateKey) Pair {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	return Pair{Cert: encode("CERTIFICATE", der), Key: encode("PRIVATE KEY", secret), Leaf: leaf}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

func newSerial(t testing.TB) *big.Int {
	t.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	must(t, err)
	return serial
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
