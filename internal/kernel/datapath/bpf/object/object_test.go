package object

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	const file = "an ELF file"
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	if _, err := io.WriteString(z, file); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(file)+1)
	n, err := Open(compressed.Bytes()).ReadAt(got, 0)
	if string(got[:n]) != file || !errors.Is(err, io.EOF) {
		t.Errorf("the object reads %q, error %v, want %q and io.EOF", got[:n], err, file)
	}
	for name, damaged := range map[string][]byte{
		"no gzip":   []byte("\x7fELF"),
		"truncated": compressed.Bytes()[:compressed.Len()-5],
	} {
		if n, err := Open(damaged).ReadAt(got, 0); n != 0 || err == nil || !strings.Contains(err.Error(), "decompress the embedded object") {
			t.Errorf("%s: read %d bytes, error %v, want an error of decompression", name, n, err)
		}
	}
}
