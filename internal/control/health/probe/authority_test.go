package probe

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

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pool        *x509.CertPool
	file        string
}

// issued is a certificate with its key, in memory and in files.
type issued struct {
	pair             tls.Certificate
	certificate, key string
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{key: newKey(t), pool: x509.NewCertPool(), file: filepath.Join(t.TempDir(), "ca.pem")}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: rand.Text()}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.certificate)
	write(t, a.file, "CERTIFICATE", der)
	return a
}

// issue makes a certificate for names and addresses.
func (a authority) issue(t *testing.T, names ...string) issued {
	t.Helper()
	return a.issueFor(t, time.Time{}, time.Now().Add(time.Hour), names...)
}

// issueFor issues a certificate for a period.
func (a authority) issueFor(t *testing.T, from, until time.Time, names ...string) issued {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: names[0]}, NotBefore: from, NotAfter: until}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	i := issued{certificate: filepath.Join(dir, "certificate.pem"), key: filepath.Join(dir, "key.pem")}
	write(t, i.certificate, "CERTIFICATE", der)
	write(t, i.key, "PRIVATE KEY", secret)
	if i.pair, err = tls.LoadX509KeyPair(i.certificate, i.key); err != nil {
		t.Fatal(err)
	}
	return i
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func write(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
