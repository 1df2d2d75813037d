package loader

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"loxilb/internal/kernel/datapath/bpf"
)

// drawSecrets sets the keys of new maps. Pinned maps keep their keys, by which known clients are
// recognized.
func (c *Collection) drawSecrets() error {
	var keys bpf.TcSecretKeys
	if err := c.Maps.Secrets.Lookup(uint32(0), &keys); err != nil {
		return fmt.Errorf("read the keys of challenges: %w", err)
	}
	if keys != (bpf.TcSecretKeys{}) {
		return nil
	}
	for _, key := range []*bpf.TcSiphashKey{&keys.Known, &keys.Challenge} {
		var random [16]byte
		rand.Read(random[:]) // never fails
		key.First, key.Second = binary.NativeEndian.Uint64(random[:]), binary.NativeEndian.Uint64(random[8:])
	}
	if err := c.Maps.Secrets.Put(uint32(0), keys); err != nil {
		return fmt.Errorf("write the keys of challenges: %w", err)
	}
	return nil
}
