package quictest

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http/httptest"

	"github.com/quic-go/quic-go"
)

// Hex decodes digits; "" is nil.
func Hex(digits string) []byte {
	if digits == "" {
		return nil
	}
	b, err := hex.DecodeString(digits)
	if err != nil {
		panic(err) // a constant of a test
	}
	return b
}

const protocol = "name"

// Serve answers each stream with a name, until close is called.
func Serve(p net.PacketConn, ids quic.ConnectionIDGenerator, name string) (closeAll func() error, err error) {
	https := httptest.NewTLSServer(nil) // for its certificate
	https.Close()
	transport := &quic.Transport{Conn: p, ConnectionIDGenerator: ids}
	config := &tls.Config{Certificates: https.TLS.Certificates, NextProtos: []string{protocol}, MinVersion: tls.VersionTLS13}
	listener, err := transport.Listen(config, nil)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := listener.Accept(context.Background())
			if err != nil {
				return
			}
			go answer(c, name)
		}
	}()
	return func() error { return errors.Join(transport.Close(), p.Close()) }, nil
}

func answer(c *quic.Conn, name string) {
	for {
		s, err := c.AcceptStream(context.Background())
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, s)
		_, _ = io.WriteString(s, name)
		_ = s.Close()
	}
}
