package transport

import (
	"strings"
	"testing"
)

// TestClip checks that texts of a peer are cut between UTF-8 characters.
func TestClip(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "", "short": "short", "größer": "größe...", strings.Repeat("x", 60_000): "xxxxx..."} {
		if got := clip(in, 5); got != want {
			t.Errorf("%.20q is shortened to %.20q, want %q", in, got, want)
		}
	}
}
