package access

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"

	"golang.org/x/crypto/argon2"
)

// The parameters of Argon2id that OWASP names for a service: 19 MiB and two passes, some 30 ms of a
// CPU.
const (
	hashMemory  = 19 << 10 // KiB
	hashPasses  = 2
	hashThreads = 1
	hashBytes   = 32
	saltBytes   = 16
)

// The length of a password in bytes. A longer one adds no protection and costs time.
const (
	minPassword = 8
	maxPassword = 128
)

// hasher hashes one password at a time for unknown callers, which bounds memory, CPU and the rate
// of guesses. Known users have a separate channel, so unknown callers cannot block them.
type hasher struct{ strangers, known chan struct{} }

func newHasher() *hasher { return &hasher{make(chan struct{}, 1), make(chan struct{}, 1)} }

// errBusy reports that passwords of other callers are being checked.
var errBusy = errors.New("other passwords are being checked: try again")

// acquire waits for a turn, and returns a function that ends it.
func (h *hasher) acquire(ctx context.Context, known bool) (done func(), err error) {
	var ofKnown chan struct{} // nil is never ready
	if known {
		ofKnown = h.known
	}
	select {
	case h.strangers <- struct{}{}:
		return func() { <-h.strangers }, nil
	case ofKnown <- struct{}{}:
		return func() { <-h.known }, nil
	case <-ctx.Done():
		return nil, errBusy
	}
}

// hash returns a password's hash as stored, in the format of the reference implementation.
func (h *hasher) hash(ctx context.Context, password string) (string, error) {
	done, err := h.acquire(ctx, true) // setting a password requires a login
	if err != nil {
		return "", err
	}
	defer done()
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // it never fails
	key := argon2.IDKey([]byte(password), salt, hashPasses, hashMemory, hashThreads, hashBytes)
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, hashMemory, hashPasses, hashThreads, b64.EncodeToString(salt), b64.EncodeToString(key)), nil
}

// matches compares a password with a stored hash. For an invalid hash it takes as long and returns
// false, so timing does not reveal whether a user exists.
func (h *hasher) matches(ctx context.Context, kept, password string, known bool) (bool, error) {
	done, err := h.acquire(ctx, known)
	if err != nil {
		return false, err
	}
	defer done()
	var version, memory, passes uint32
	var threads uint8
	var rest string
	salt, want := make([]byte, saltBytes), make([]byte, hashBytes)
	readable := false
	if n, err := fmt.Sscanf(kept, "$argon2id$v=%d$m=%d,t=%d,p=%d$%s", &version, &memory, &passes, &threads, &rest); err == nil && n == 5 && version == argon2.Version {
		readable = decodePair(rest, &salt, &want) && memory <= 1<<20 && passes >= 1 && passes <= 100 && threads >= 1
	}
	if !readable {
		memory, passes, threads = hashMemory, hashPasses, hashThreads
	}
	got := argon2.IDKey([]byte(password), salt, passes, memory, threads, uint32(len(want)))
	return subtle.ConstantTimeCompare(got, want) == 1 && readable, nil
}

// decodePair decodes SALT$KEY.
func decodePair(text string, salt, key *[]byte) bool {
	for i := range len(text) {
		if text[i] != '$' {
			continue
		}
		s, err1 := base64.RawStdEncoding.DecodeString(text[:i])
		k, err2 := base64.RawStdEncoding.DecodeString(text[i+1:])
		if err1 != nil || err2 != nil || len(s) < 8 || len(k) < 16 {
			return false
		}
		*salt, *key = s, k
		return true
	}
	return false
}
