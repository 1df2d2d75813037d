// Package quictest has QUIC servers that write server IDs into their connection IDs, and clients
// whose address changes.
package quictest

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"

	"github.com/quic-go/quic-go"
)

// IDs generates the connection IDs of a server, in the format of draft-ietf-quic-load-balancers-21.
// It is a quic.ConnectionIDGenerator.
type IDs struct {
	Config byte // number of the configuration
	Server []byte
	Nonce  int    // its length
	Key    []byte // of AES-128; nil: plaintext
}

// ConnectionIDLen returns the length of all connection IDs.
func (g *IDs) ConnectionIDLen() int { return 1 + len(g.Server) + g.Nonce }

// GenerateConnectionID returns a new connection ID.
func (g *IDs) GenerateConnectionID() (quic.ConnectionID, error) {
	nonce := make([]byte, g.Nonce)
	if _, err := rand.Read(nonce); err != nil {
		return quic.ConnectionID{}, err
	}
	id, err := g.With(nonce)
	if err != nil {
		return quic.ConnectionID{}, err
	}
	return quic.ConnectionIDFromBytes(id), nil
}

// With returns the connection ID with a nonce.
func (g *IDs) With(nonce []byte) ([]byte, error) {
	plain := append(bytes.Clone(g.Server), nonce...)
	id := append([]byte{g.Config<<5 | byte(len(plain))}, plain...)
	if g.Key == nil {
		return id, nil
	}
	block, err := aes.NewCipher(g.Key)
	switch {
	case err != nil:
		return nil, err
	case len(plain) > 19:
		return nil, errors.New("server ID and nonce have more than 19 bytes")
	case len(plain) == aes.BlockSize:
		block.Encrypt(id[1:], plain)
		return id, nil
	}
	return append(id[:1], fourPasses(block, plain)...), nil
}

// fourPasses encrypts by a Feistel network of two halves. If the length is odd, each half has four
// bits of the byte in the middle.
func fourPasses(block cipher.Block, plain []byte) []byte {
	half, odd := (len(plain)+1)/2, len(plain)%2 == 1
	halves := [2][]byte{bytes.Clone(plain[:half]), bytes.Clone(plain[len(plain)-half:])}
	clearMiddle := func() {
		if odd {
			halves[0][half-1] &= 0xf0
			halves[1][0] &= 0x0f
		}
	}
	clearMiddle()
	for pass := range 4 {
		from, to := halves[pass%2], halves[1-pass%2]
		var b [aes.BlockSize]byte
		copy(b[:], from)
		b[14], b[15] = byte(len(plain)), byte(pass+1)
		block.Encrypt(b[:], b[:])
		for i := range to {
			to[i] ^= b[i]
		}
		clearMiddle()
	}
	if !odd {
		return append(halves[0], halves[1]...)
	}
	halves[0][half-1] |= halves[1][0]
	return append(halves[0], halves[1][1:]...)
}
