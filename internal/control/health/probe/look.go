package probe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	most  = 64 << 10 // bytes of an answer that are searched
	chunk = 4 << 10
)

// look reads an answer until it contains want; an empty want: until anything arrives.
func look(q Question, r io.Reader, want string) error {
	buf := make([]byte, chunk+len(want))
	kept, total := 0, 0 // kept: bytes at the beginning that may be part of want
	for {
		n, err := r.Read(buf[kept : kept+chunk])
		total += n
		have := buf[:kept+n]
		switch {
		case n > 0 && bytes.Contains(have, []byte(want)):
			return nil
		case errors.Is(err, io.EOF) && total == 0:
			return errors.New("closed without an answer")
		case errors.Is(err, io.EOF):
			return fmt.Errorf("the answer has no %q in it", want)
		case err != nil && total > 0:
			return fmt.Errorf("%w after %d bytes without %q", plain(q, err), total, want)
		case err != nil:
			return plain(q, err)
		case total >= most:
			return fmt.Errorf("no %q in the first %d bytes of the answer", want, most)
		}
		kept = copy(buf, have[max(0, len(have)-len(want)+1):])
	}
}
