package build

import (
	"runtime"
	"testing"
)

// TestInfo checks that unknown parts are left out, in the long and in the short form.
func TestInfo(t *testing.T) {
	t.Parallel()
	platform := runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	i := Of("v1.2.3", "0123456789abcdef0123456789abcdef01234567", "2026-11-23T12:00:00Z")
	i.ObjectABI = "fedcba9876543210"
	if got, want := i.Brief(), "0123456789ab of 2026-11-23T12:00:00Z, "+platform; got != want {
		t.Errorf("Brief returns %q, want %q", got, want)
	}
	want := "  commit       0123456789abcdef0123456789abcdef01234567\n  commit date  2026-11-23T12:00:00Z\n  Go           " + platform + "\n  object ABI   fedcba9876543210\n"
	if got := i.Lines(); got != want {
		t.Errorf("Lines returns %q, want %q", got, want)
	}
	unknown := Of("dev", "", "")
	if got := unknown.Brief(); got != platform {
		t.Errorf("outside of git: %q", got)
	}
	if got, want := unknown.Lines(), "  Go           "+platform+"\n"; got != want {
		t.Errorf("outside of git: %q, want %q", got, want)
	}
}
