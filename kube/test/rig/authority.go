package rig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// authority is the CA of a cluster, which issues the certificates of servers and users.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// identity is a certificate and its key, as PEM.
type identity struct{ cert, key []byte }

// newAuthority makes a CA with files in a directory.
func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, key: key}
	template := a.template(pkix.Name{CommonName: "rig"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return a, a.write("ca.crt", a.pem)
}

func (a *authority) template(subject pkix.Name) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // never: the kernel has random numbers
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// issue returns a certificate for a client, or for a server at these addresses.
func (a *authority) issue(subject pkix.Name, addresses ...netip.Addr) (identity, error) {
	template := a.template(subject)
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, address.AsSlice())
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return identity{}, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	return identity{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}),
	}, err
}

// path returns the path of a file in the authority's directory.
func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) write(name string, text []byte) error {
	return os.WriteFile(a.path(name), text, 0o600)
}

// kubeconfig writes the kubeconfig of a user and returns its path.
func (a *authority) kubeconfig(server, user string, groups ...string) (string, error) {
	id, err := a.issue(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return "", fmt.Errorf("certificate of %s: %w", user, err)
	}
	type object = map[string]any
	text, err := json.Marshal(object{
		"apiVersion":      "v1",
		"kind":            "Config",
		"clusters":        []object{{"name": "rig", "cluster": object{"server": server, "certificate-authority-data": a.pem}}},
		"users":           []object{{"name": "rig", "user": object{"client-certificate-data": id.cert, "client-key-data": id.key}}},
		"contexts":        []object{{"name": "rig", "context": object{"cluster": "rig", "user": "rig"}}},
		"current-context": "rig",
	})
	if err != nil {
		return "", err
	}
	name := user + ".kubeconfig"
	return a.path(name), a.write(name, text)
}
