package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// certFiles are certificates of authorities, and the node's certificate and key: PEM.
type certFiles struct{ ca, cert, key string }

// CertFiles reads the certificates of the authorities that certify nodes, and this node's own.
func CertFiles(ca, cert, key string) (*Credentials, error) {
	return newCredentials(&Credentials{source: certFiles{ca, cert, key}})
}

func (f certFiles) read() (files [][]byte, err error) {
	for _, path := range []string{f.ca, f.cert, f.key} {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s cannot be read: %w", path, cause(err))
		}
		files = append(files, data)
	}
	return files, nil
}

func (f certFiles) parse(files [][]byte) (*identity, error) {
	i := &identity{pool: x509.NewCertPool(), refuse: describeInvalid}
	if !i.pool.AppendCertsFromPEM(files[0]) {
		return nil, fmt.Errorf("%s has no certificate", f.ca)
	}
	var err error
	if i.own, err = tls.X509KeyPair(files[1], files[2]); err != nil {
		return nil, fmt.Errorf("%s and %s cannot be used: %w", f.cert, f.key, err)
	}
	return i, nil
}

// describeInvalid explains why a certificate is not accepted.
func describeInvalid(err error) error {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return fmt.Errorf("the peer has a certificate that is not valid by this node's clock: %s", invalid.Detail)
	}
	return fmt.Errorf("the peer has a certificate of another authority than --cluster-ca: %w", err)
}
