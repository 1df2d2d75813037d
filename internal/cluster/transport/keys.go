package transport

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"time"
)

const (
	// minKeySize is how long a key must be, in bytes: 128 bits in hexadecimal digits.
	minKeySize = 32
	// maxKeys is how many keys a file may have: a node shows a certificate by each.
	maxKeys = 4
	// maxKeyFile is how long the file may be.
	maxKeyFile = 64 << 10
)

// keyFile has the keys of a cluster, one per line. They replace certificate authorities: a holder
// of any key is a node.
type keyFile struct{ path, node string }

// KeyFile reads the keys that all nodes of a cluster share.
func KeyFile(path, node string) (*Credentials, error) {
	return newCredentials(&Credentials{source: keyFile{path, node}})
}

func (f keyFile) read() ([][]byte, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", cause(err))
	}
	defer file.Close() //nolint:errcheck // it was read only
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", cause(err))
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("has mode %04o: others can read the key (chmod 600)", info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", cause(err))
	}
	if len(data) > maxKeyFile {
		return nil, fmt.Errorf("has more than %d bytes: this is not a key file", maxKeyFile)
	}
	return [][]byte{data}, nil
}

// parse makes an authority of each key, and a certificate of this node by each, all for one private
// key.
func (f keyFile) parse(files [][]byte) (*identity, error) {
	keys, err := keysOf(files[0])
	if err != nil {
		return nil, err
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the node's key: %w", err)
	}
	i := &identity{
		own: tls.Certificate{PrivateKey: private}, pool: x509.NewCertPool(),
		refuse: func(error) error { return errors.New("the peer has another --cluster-key") },
	}
	for _, key := range keys {
		authority, leaf, err := certify(key, f.node, public)
		if err != nil {
			return nil, err
		}
		i.pool.AddCert(authority)
		i.own.Certificate = append(i.own.Certificate, leaf)
	}
	i.own.Leaf, err = x509.ParseCertificate(i.own.Certificate[0])
	return i, err
}

// keysOf returns the keys of a file, one per line. It skips empty lines and comments (#).
func keysOf(data []byte) (keys [][]byte, err error) {
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if len(line) < minKeySize {
			return nil, fmt.Errorf("has a key of %d characters in line %d, of at least %d: openssl rand -hex 32", len(line), number, minKeySize)
		}
		keys = append(keys, line)
	}
	if len(keys) == 0 {
		return nil, errors.New("has no key: openssl rand -hex 32")
	}
	if len(keys) > maxKeys {
		return nil, fmt.Errorf("has %d keys, a line each (allowed: %d)", len(keys), maxKeys)
	}
	return keys, nil
}

// certify makes the authority of a key, and a certificate by it. Both are valid at any time: clocks
// of nodes may be wrong.
func certify(key []byte, node string, public ed25519.PublicKey) (authority *x509.Certificate, leaf []byte, err error) {
	seed, err := hkdf.Key(sha256.New, key, nil, "loxilb cluster authority", ed25519.SeedSize)
	if err != nil {
		return nil, nil, fmt.Errorf("derive the cluster's authority: %w", err)
	}
	private := ed25519.NewKeyFromSeed(seed)
	authority = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "loxilb cluster"},
		NotBefore: time.Unix(0, 0), NotAfter: endOfTime(), KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, private.Public(), private)
	if err == nil {
		authority, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("make the cluster's authority: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: node}, DNSNames: []string{node},
		NotBefore: time.Unix(0, 0), NotAfter: endOfTime(), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if leaf, err = x509.CreateCertificate(rand.Reader, template, authority, public, private); err != nil {
		return nil, nil, fmt.Errorf("make the node's certificate: %w", err)
	}
	return authority, leaf, nil
}

// endOfTime is the last time of X.509.
func endOfTime() time.Time { return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) }
