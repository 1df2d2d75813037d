package packet

import (
	"strings"
	"testing"

	"loxilb/test/packet/lab"
)

// TestScriptConfig checks that settings have an effect after comments, and are an error after a
// step.
func TestScriptConfig(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]lab.Config{
		"size 4\nhalf-open 25\nadvance 1s":               {Connections: 4, HalfOpen: 25},
		"# a comment\n\nsize 4\n# another\nhalf-open 25": {Connections: 4, HalfOpen: 25},
		"advance 1s\n# size 4":                           {},
	} {
		if got, err := (script{lines: strings.Split(text, "\n")}).config(lab.Config{}); err != nil || got.Connections != want.Connections || got.HalfOpen != want.HalfOpen {
			t.Errorf("%q: got %d, %d, %v, want no error, got.Connections == want.Connections, got.HalfOpen == want.HalfOpen",
				text, got.Connections, got.HalfOpen, err)
		}
	}
	if _, err := (script{lines: []string{"size 4", "advance 1s", "half-open 25"}}).config(lab.Config{}); err == nil || !strings.Contains(err.Error(), `"half-open 25" is a setting`) {
		t.Errorf("a setting after a step: %v", err)
	}
}
