package loader

import (
	"strings"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
)

// TestOtherSkew checks that a table whose rows begin at another offset than this process expects is
// refused, and not changed.
func TestOtherSkew(t *testing.T) {
	t.Parallel()
	settings := Settings{Connections: 1024, PinDir: pinDir(t)}
	first, err := Open(settings)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	var state bpf.TcTableState
	if err := first.Maps.TableStates.Lookup(uint32(0), &state); err != nil {
		t.Fatal(err)
	}
	state.Skew ^= 8
	if err := first.Maps.TableStates.Put(uint32(0), &state); err != nil {
		t.Fatal(err)
	}
	second, err := Open(settings)
	if err == nil {
		_ = second.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "--detach") {
		t.Errorf("loading a table with another skew gives %v, want an error with --detach", err)
	}
}
