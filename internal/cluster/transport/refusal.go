package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// describeAlert explains why the peer ended the handshake. With TLS 1.3, a client learns only after
// its handshake that the server does not accept its certificate.
func describeAlert(err error) error {
	var remote *net.OpError
	if !errors.As(err, &remote) || remote.Op != "remote error" { // the type of alerts is private to crypto/tls
		return err
	}
	if !strings.Contains(remote.Err.Error(), "certificate") {
		return describeForeign(remote.Err)
	}
	return &ErrRefused{Text: fmt.Sprintf("the peer does not accept this node's certificate: does it have the same --cluster-key, or --cluster-ca? (%v)", remote.Err)}
}

func describeForeign(err error) error {
	return &ErrRefused{Text: fmt.Sprintf("the peer does not speak the protocol between nodes: is it the --cluster-listen address of a loxilb? (%v)", err)}
}

// describeDial explains why the greeting of a server failed. The server may not be a loxilb.
func describeDial(err error) error {
	var head tls.RecordHeaderError
	switch {
	case errors.As(err, &head):
		return &ErrRefused{Text: "the peer does not speak TLS: is it the --cluster-listen address of a loxilb?"}
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the peer accepts connections, and does not answer within %v: %w", handshakeTime, err)
	case strings.HasPrefix(err.Error(), "tls: "): // the peer sent no TLS handshake
		return describeForeign(err)
	}
	return describeAlert(err)
}
