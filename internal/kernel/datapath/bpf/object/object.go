// Package object opens the BPF objects that the generated packages embed.
package object

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
)

// Open returns the ELF file of an object that tools/bpf has compressed by gzip. Compression reduces
// an object to a tenth of its size, in the repository and in each program that embeds it. Reads of
// a damaged object return the error.
func Open(compressed []byte) io.ReaderAt {
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return unreadable{err}
	}
	file, err := io.ReadAll(z)
	if err != nil {
		return unreadable{err}
	}
	return bytes.NewReader(file)
}

// An unreadable object returns its error to each reader.
type unreadable struct{ err error }

func (u unreadable) ReadAt([]byte, int64) (int, error) {
	return 0, fmt.Errorf("decompress the embedded object: %w", u.err)
}
