package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"strings"
)

// flagFile is a file that a flag names.
type flagFile struct{ flag, path string }

// maxFlagFile bounds what is read of a file.
const maxFlagFile = 1 << 20

// readRoots reads CA certificates.
func readRoots(ca flagFile) (*x509.CertPool, error) {
	text, _, err := readSmallFile(ca.flag, ca.path)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bytes.TrimSpace(text)) {
		return nil, &Error{ca.flag, ca.path, "contains no certificate (PEM)"}
	}
	return roots, nil
}

// readKeyPair reads a certificate and its private key.
func readKeyPair(cert, key flagFile) (*tls.Certificate, error) {
	certificate, _, err := readSmallFile(cert.flag, cert.path)
	if err != nil {
		return nil, err
	}
	secret, _, err := readSmallFile(key.flag, key.path)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, secret)
	if err != nil {
		return nil, &Error{cert.flag, cert.path, "cannot be used with " + key.flag + ": " + strings.TrimPrefix(err.Error(), "tls: ")}
	}
	return &pair, nil
}

// checkPEM checks certificates and a key before a component reads them: its errors name no flag.
// Each path may be empty.
func checkPEM(ca, cert, key flagFile) error {
	if ca.path != "" {
		if _, err := readRoots(ca); err != nil {
			return err
		}
	}
	if cert.path == "" {
		return nil
	}
	_, err := readKeyPair(cert, key)
	return err
}

// readSmallFile reads a file of at most maxFlagFile bytes.
func readSmallFile(flag, path string) ([]byte, os.FileMode, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, &Error{flag, path, "cannot be read: " + cause(err)}
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return nil, 0, &Error{flag, path, "is not a file"}
	}
	if err != nil {
		return nil, 0, &Error{flag, path, "cannot be read: " + cause(err)}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFlagFile+1))
	if err != nil {
		return nil, 0, &Error{flag, path, "cannot be read: " + cause(err)}
	}
	if len(text) > maxFlagFile {
		return nil, 0, &Error{flag, path, fmt.Sprintf("is larger than %d bytes", maxFlagFile)}
	}
	return text, info.Mode(), nil
}
