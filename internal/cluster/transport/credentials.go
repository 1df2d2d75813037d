// Package transport carries records between the nodes of a cluster: TCP, TLS 1.3 with certificates
// on both sides, and frames.
package transport

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"os"
	"strings"
	"time"
)

// Credentials make the TLS configuration of a connection.
type Credentials interface {
	// Config returns the configuration of the next connection, in either direction: files may have
	// changed since the one before.
	Config() (*tls.Config, error)
}

// leastKey is how long a key must be, in bytes: 128 bits in hexadecimal digits.
const leastKey = 32

// KeyFile reads the key that all nodes of a cluster share. It takes the place of a certificate
// authority: who knows it is a node.
func KeyFile(path, node string) (Credentials, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", cause(err))
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("has mode %04o: others can read the key (chmod 600)", info.Mode().Perm())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", cause(err))
	}
	key := strings.TrimSpace(string(data))
	if len(key) < leastKey {
		return nil, fmt.Errorf("has a key of %d characters, of at least %d: openssl rand -hex 32", len(key), leastKey)
	}
	return newShared([]byte(key), node)
}

// cause returns the reason of a file error without the path, which the sentence names already.
func cause(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// shared is a certificate authority that each node makes of the shared key, for itself.
type shared struct{ config *tls.Config }

// newShared makes the authority and the node's certificate. Both are valid at any time: clocks of
// nodes may be wrong.
func newShared(key []byte, node string) (*shared, error) {
	seed, err := hkdf.Key(sha256.New, key, nil, "loxilb cluster authority", ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the cluster's authority: %w", err)
	}
	private := ed25519.NewKeyFromSeed(seed)
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "loxilb cluster"},
		NotBefore: time.Unix(0, 0), NotAfter: endOfTime(), KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, private.Public(), private)
	if err == nil {
		authority, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return nil, fmt.Errorf("make the cluster's authority: %w", err)
	}
	public, own, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the node's key: %w", err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: node}, DNSNames: []string{node},
		NotBefore: time.Unix(0, 0), NotAfter: endOfTime(), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if der, err = x509.CreateCertificate(rand.Reader, leaf, authority, public, private); err != nil {
		return nil, fmt.Errorf("make the node's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	return &shared{configOf(tls.Certificate{Certificate: [][]byte{der}, PrivateKey: own}, pool, "another --cluster-key")}, nil
}

// endOfTime is the last time of X.509.
func endOfTime() time.Time { return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) }

// Config returns the same each time.
func (s *shared) Config() (*tls.Config, error) { return s.config, nil }

// Files are a certificate authority, and the node's certificate and key: PEM. They are read again
// for each connection.
type Files struct{ CA, Cert, Key string }

// Config reads the files.
func (f Files) Config() (*tls.Config, error) {
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read the cluster's authority: %s has no certificate", f.CA)
	}
	own, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("read the node's certificate: %w", err)
	}
	return configOf(own, pool, "a certificate of another authority than --cluster-ca"), nil
}

// configOf returns a configuration for both directions. Peers are verified by the authority alone:
// their addresses may be any. wrong is what a peer has that the authority did not certify.
func configOf(own tls.Certificate, pool *x509.CertPool, wrong string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert,
		InsecureSkipVerify: true, SessionTicketsDisabled: true, // VerifyConnection verifies, each time
		VerifyConnection: func(s tls.ConnectionState) error { return verify(s.PeerCertificates, pool, wrong) },
	}
}

func verify(chain []*x509.Certificate, pool *x509.CertPool, wrong string) error {
	if len(chain) == 0 {
		return errors.New("the peer has no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return &ErrRefused{Sentence: fmt.Sprintf("the peer has %s: %v", wrong, err)}
	}
	return nil
}
