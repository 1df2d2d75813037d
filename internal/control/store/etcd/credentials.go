package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	grpccredentials "google.golang.org/grpc/credentials"
)

// credentials are TLS credentials whose files are read again for each connection, as certificates
// may be renewed while the node runs.
type credentials struct {
	grpccredentials.TransportCredentials // for methods that do not depend on the files
	ca, cert, key                        string
	roots                                atomic.Pointer[x509.CertPool] // from the last successful read of ca
}

// newCredentials reads the files for the first time. cert may be empty.
func newCredentials(ca, cert, key string) (*credentials, error) {
	c := &credentials{ca: ca, cert: cert, key: key}
	if ca != "" {
		roots, err := c.readRoots()
		if err != nil {
			return nil, err
		}
		c.roots.Store(roots)
	}
	if cert != "" {
		if _, err := c.keyPair(); err != nil {
			return nil, err
		}
	}
	c.TransportCredentials = grpccredentials.NewTLS(c.config())
	return c, nil
}

func (c *credentials) readRoots() (*x509.CertPool, error) {
	pem, err := os.ReadFile(c.ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s does not contain a certificate", c.ca)
	}
	return roots, nil
}

func (c *credentials) keyPair() (*tls.Certificate, error) {
	own, err := tls.LoadX509KeyPair(c.cert, c.key)
	return &own, err
}

// config returns the configuration for a connection. If the CA file cannot be used, its previous
// certificates stay in use.
func (c *credentials) config() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.ca != "" {
		if roots, err := c.readRoots(); err == nil {
			c.roots.Store(roots)
		}
		config.RootCAs = c.roots.Load()
	}
	if c.cert != "" {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.keyPair() }
	}
	return config
}

// ClientHandshake implements grpccredentials.TransportCredentials.
func (c *credentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, grpccredentials.AuthInfo, error) {
	return grpccredentials.NewTLS(c.config()).ClientHandshake(ctx, authority, conn)
}

// Clone implements grpccredentials.TransportCredentials.
func (c *credentials) Clone() grpccredentials.TransportCredentials { return c }
