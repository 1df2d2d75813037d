package drops

import (
	"testing"

	"loxilb/internal/dropreason"
)

// TestOurs: each reason that the log warns of is one, and comes with what to do.
func TestOurs(t *testing.T) {
	t.Parallel()
	for _, name := range ours() {
		if r, known := dropreason.Of(name); !known || r.Remedy == "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
