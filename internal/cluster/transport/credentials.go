// Package transport carries records between the nodes of a cluster: TCP, TLS 1.3 with certificates
// on both sides, and frames.
package transport

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Credentials prove that this node belongs to the cluster, and verify other nodes. They are read
// from files, which may change while the node runs.
type Credentials struct {
	source interface {
		// read returns the contents of the files.
		read() ([][]byte, error)
		// parse makes an identity of the contents.
		parse(files [][]byte) (*identity, error)
	}

	mu      sync.Mutex
	now     *identity
	seen    [sha256.Size]byte // fingerprint of the files as read last
	used    [sha256.Size]byte // fingerprint of the files as parsed last
	problem error             // why the files cannot be used; nil: they are in use
}

// identity is the certificate of a node, and the certificates that it accepts.
type identity struct {
	own    tls.Certificate
	pool   *x509.CertPool
	refuse func(error) error // describes why a peer's certificate is not accepted
}

// newCredentials reads the files for the first time.
func newCredentials(c *Credentials) (*Credentials, error) {
	files, err := c.source.read()
	if err == nil {
		c.now, err = c.source.parse(files)
	}
	if err != nil {
		return nil, err
	}
	c.seen = fingerprint(files, nil)
	c.used = c.seen
	return c, nil
}

// Reload reads the files again, and reports whether the credentials have changed. A change counts
// once two calls have read the same: editors and scripts write files in steps. If the files cannot
// be used, the previous credentials stay in use, and Problem returns the reason.
func (c *Credentials) Reload() bool {
	files, err := c.source.read()
	sum := fingerprint(files, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	stable := sum == c.seen
	c.seen = sum
	if !stable || sum == c.used {
		return false
	}
	c.used = sum
	var next *identity
	if err == nil {
		next, err = c.source.parse(files)
	}
	c.problem = err
	if err != nil {
		return false
	}
	c.now = next
	return true
}

func fingerprint(files [][]byte, err error) [sha256.Size]byte {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%d ", len(f))
		h.Write(f)
	}
	fmt.Fprint(h, err)
	return [sha256.Size]byte(h.Sum(nil))
}

// Problem returns why the files as they are now cannot be used, or nil.
func (c *Credentials) Problem() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem
}

// Expires returns when the node's certificate ends.
func (c *Credentials) Expires() time.Time { return c.current().own.Leaf.NotAfter }

func (c *Credentials) current() *identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Config returns the configuration of the next connection, in either direction. Peers are verified
// by the authority alone: their addresses may be any.
func (c *Credentials) Config() *tls.Config {
	now := c.current()
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{now.own}, ClientAuth: tls.RequireAnyClientCert,
		InsecureSkipVerify: true, SessionTicketsDisabled: true, // VerifyConnection verifies, each time
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := now.verify(s.PeerCertificates)
			return err
		},
	}
}

// maxVariants bounds the certificates of one key that a peer may show.
const maxVariants = 8

// verify returns the certificate of a peer that this node accepts. A peer may send several
// certificates of its key, by different authorities: nodes with either of two cluster keys accept a
// node that has both.
func (i *identity) verify(chain []*x509.Certificate) (*x509.Certificate, error) {
	if len(chain) == 0 {
		return nil, errors.New("the peer has no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	var first error
	variants := 0
	for _, c := range chain {
		if !bytes.Equal(c.RawSubjectPublicKeyInfo, chain[0].RawSubjectPublicKeyInfo) {
			continue
		}
		if variants++; variants > maxVariants {
			break
		}
		_, err := c.Verify(x509.VerifyOptions{
			Roots: i.pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		})
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, &ErrRefused{Text: i.refuse(first).Error()}
}

// cause returns the reason of a file error without the path, which the sentence names already.
func cause(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
