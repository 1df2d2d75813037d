package expiry_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"loxilb/internal/expiry"
)

// certificate is one that ends at a time.
func certificate(t *testing.T, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: end}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

// TestOf: what ends first counts, wherever it is in the file, and keys beside it do not.
func TestOf(t *testing.T) {
	t.Parallel()
	soon, late := time.Now().Add(time.Hour).Truncate(time.Second), time.Now().Add(time.Hour*24).Truncate(time.Second)
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte{1}})
	got, err := expiry.Of(bytes.Join([][]byte{key, certificate(t, late), certificate(t, soon)}, []byte("text\n")))
	if err != nil || !got.Equal(soon) {
		t.Errorf("%v, %v, want %v", got, err, soon)
	}
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}})
	for _, text := range [][]byte{nil, key, broken, []byte("x")} {
		if _, err := expiry.Of(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
