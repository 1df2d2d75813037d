package session

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminalPair returns a terminal, and the side to which the user's input is written.
func terminalPair(t *testing.T) (typed, terminal *os.File) {
	t.Helper()
	typed, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = typed.Close() })
	if err := unix.IoctlSetPointerInt(int(typed.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(typed.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	return typed, terminal
}

// TestAgreed checks that a confirmation is requested at a terminal unless --yes is given, and never
// in a script.
func TestAgreed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typed string
		yes   bool
		count int
		asks  string
		goes  bool
	}{
		{"y\n", false, 3, "Delete 3 services? [y/N] ", true},
		{"yes\n", false, 1, "Delete 1 service? [y/N] ", true},
		{"\n", false, 3, "Delete 3 services? [y/N] ", false},
		{"no\n", false, -1, "Delete all services? [y/N] ", false},
		{"", true, 3, "", true},
		{"", false, 0, "", true},
	} {
		typed, terminal := terminalPair(t)
		if _, err := typed.WriteString(c.typed); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		o := &Options{Env: Env{Stdin: terminal, Stderr: &said}}
		f := AllFlags{All: true, yes: c.yes}
		if err := f.Agreed(o, c.count, "service"); (err == nil) != c.goes || said.String() != c.asks {
			t.Errorf("%+v: got %v after %q, want the command to go on: %t, after asking %q", c, err, said.String(), c.goes, c.asks)
		}
	}
	script := &Options{Env: Env{Stdin: strings.NewReader("")}}
	if err := (&AllFlags{All: true}).Agreed(script, 3, "service"); err != nil {
		t.Error(err)
	}
}
