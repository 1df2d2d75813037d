package lb

import (
	"strings"
	"testing"
)

func TestSuggest(t *testing.T) {
	t.Parallel()
	words := []string{"default", "onearm", "fullnat", "dsr", "hostonearm", "rr", "hash", "persist"}
	for text, want := range map[string]string{
		"onearmm": "onearm", "one-arm": "onearm", "OneArm": "onearm", "dfault": "default", "dsrr": "dsr", "pers": "persist", "hsah": "hash",
		"": "", "x": "", "completely": "", "rq": "rr", strings.Repeat("onearm", 100): "",
	} {
		if got := Suggest(text, words); got != want {
			t.Errorf("%.20q: %q, want %q", text, got, want)
		}
	}
}

// TestSuggestedWords checks that the error for an unknown word suggests a similar one, and only
// words of this build.
func TestSuggestedWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"onearmm": `mode "onearmm" is not known; did you mean onearm? (allowed: default, onearm, fullnat, dsr, hostonearm or auto)`,
		"x":       `mode "x" is not known (allowed: default, onearm, fullnat, dsr, hostonearm or auto)`,
	} {
		if _, err := ParseMode(text); err == nil || err.Error() != want {
			t.Errorf("parsing %q fails with %v, want %s", text, err, want)
		}
	}
	if _, err := ParseAlgorithm("n4"); err == nil || strings.Contains(err.Error(), "n2") {
		t.Errorf("%v suggests a word that this build does not support", err)
	}
}
