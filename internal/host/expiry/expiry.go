// Package expiry finds out when certificates end.
package expiry

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// Of returns when the first certificate in a PEM file ends: a chain, or a bundle of authorities, is
// complete until then.
func Of(text []byte) (first time.Time, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return time.Time{}, fmt.Errorf("read certificate: %w", err)
		}
		if first.IsZero() || one.NotAfter.Before(first) {
			first = one.NotAfter
		}
	}
	if first.IsZero() {
		return first, errors.New("read certificate: the file has none")
	}
	return first, nil
}
