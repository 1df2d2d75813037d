package machine

import (
	"slices"
	"testing"

	"loxilb/internal/event"
)

// TestEventKinds checks that --kind of get events names all kinds.
func TestEventKinds(t *testing.T) {
	t.Parallel()
	var want []string
	for _, kind := range event.Kinds() {
		want = append(want, string(kind))
	}
	if got := eventKinds(); !slices.Equal(got, want) {
		t.Errorf("eventKinds() = %q, want %q", got, want)
	}
}
