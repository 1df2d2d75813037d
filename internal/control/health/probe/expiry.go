package probe

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ExpiryOf returns the earliest expiry of the certificates in a PEM file. Until then, a chain or a
// bundle of authorities is complete.
func ExpiryOf(text []byte) (first time.Time, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return time.Time{}, fmt.Errorf("read certificate: %w", err)
		}
		if first.IsZero() || certificate.NotAfter.Before(first) {
			first = certificate.NotAfter
		}
	}
	if first.IsZero() {
		return first, errors.New("read certificate: the file contains none")
	}
	return first, nil
}

// maxExpiries bounds the number of files in a cache. A full cache is emptied.
const maxExpiries = 1000

// ExpiryCache caches the results of ExpiryOf for files, as long as the files do not change.
type ExpiryCache struct {
	mu    sync.Mutex
	known map[string]knownExpiry // by file name
}

// knownExpiry is the result for a file, and the state of the file that it is from.
type knownExpiry struct {
	changed time.Time
	size    int64
	end     time.Time
	err     error
}

// Of returns the result of ExpiryOf for a file with this modification time and size. It reads the
// file only if either has changed.
func (c *ExpiryCache) Of(file string, changed time.Time, size int64, read func() ([]byte, error)) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.known[file]; ok && k.changed.Equal(changed) && k.size == size {
		return k.end, k.err
	}
	text, err := read()
	if err != nil {
		return time.Time{}, err
	}
	if c.known == nil || len(c.known) >= maxExpiries {
		c.known = map[string]knownExpiry{}
	}
	end, err := ExpiryOf(text)
	c.known[file] = knownExpiry{changed, size, end, err}
	return end, err
}
