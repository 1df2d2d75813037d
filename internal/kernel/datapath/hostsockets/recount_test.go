package hostsockets

import (
	"errors"
	"io"
	"io/fs"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// iterator returns an error for each call of Read, and then EOF.
type iterator struct{ left []error }

func (i *iterator) Read([]byte) (int, error) {
	if len(i.left) == 0 {
		return 0, io.EOF
	}
	err := i.left[0]
	i.left = i.left[1:]
	return 0, err
}

// TestMillionsOfSockets checks that all sockets are visited although the kernel interrupts an
// iterator after a million of them, and that other errors are returned.
func TestMillionsOfSockets(t *testing.T) {
	t.Parallel()
	again := &fs.PathError{Op: "read", Path: "bpf_iter", Err: unix.EAGAIN}
	all := &iterator{left: []error{again, again}}
	if err := readAll(all); err != nil || len(all.left) > 0 {
		t.Errorf("got %v, and %d calls left, want all calls", err, len(all.left))
	}
	if err := readAll(&iterator{left: []error{again, unix.ENOMEM}}); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("got %v, want %v", err, unix.ENOMEM)
	}
}

// TestRecountPause checks that recounts take at most a hundredth of a core.
func TestRecountPause(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{0: 5 * time.Second, 50 * time.Millisecond: 5 * time.Second, 200 * time.Millisecond: 20 * time.Second} {
		if pause := recountPause(took); pause != want {
			t.Errorf("after %v: got %v, want %v", took, pause, want)
		}
	}
}
