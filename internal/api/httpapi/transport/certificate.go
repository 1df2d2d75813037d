package transport

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is the server's, read again when its files change. Files that do not match, as while
// they are being replaced, leave the old one in use, and are logged once.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	now               func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	seen    [2]fileState // versions of the files of current, or of the last failure
	looked  time.Time
}

// fileState distinguishes versions of a file, also when a name refers to another file (a symbolic
// link, a rename).
type fileState struct {
	modified time.Time
	size     int64
}

func newCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log, now: time.Now}
	c.looked, c.seen = c.now(), c.state()
	if err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// get returns the certificate, for tls.Config. It checks the files once a second at most.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.looked) >= time.Second {
		c.looked = now
		if state := c.state(); state != c.seen {
			c.seen = state
			if err := c.load(); err != nil {
				c.log.Error("new certificate not used, the old one stays", "error", err)
			} else {
				c.log.Info("new certificate", "file", c.certFile)
			}
		}
	}
	return c.current, nil
}

func (c *certificate) state() (out [2]fileState) {
	for i, path := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(path); err == nil {
			out[i] = fileState{info.ModTime(), info.Size()}
		}
	}
	return out
}

func (c *certificate) load() error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("load certificate %s: %w", c.certFile, err)
	}
	c.current = &pair
	return nil
}
