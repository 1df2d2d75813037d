package session

import (
	"strings"
	"testing"
)

// TestOddTemplates checks that a template on which the template library panics is refused.
func TestOddTemplates(t *testing.T) {
	t.Parallel()
	document, err := documentOf([]byte(`{"a":[1,2]}`))
	if err != nil {
		t.Fatal(err)
	}
	const odd = "{range .a[*]}{range .a[*]}{[0:5:0] }"
	f, err := parseFormat("jsonpath="+odd, true)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := f.execute(document); err == nil || !strings.Contains(err.Error(), "invalid template") {
		t.Errorf(`got %q %v, want an error, "invalid template" in the error`, out, err)
	}
	if f, err = parseFormat("custom-columns=A:"+odd, true); err != nil {
		t.Fatal(err)
	}
	if cells, err := f.row(document); err == nil || !strings.Contains(err.Error(), "invalid template") {
		t.Errorf(`got %q %v, want an error, "invalid template" in the error`, cells, err)
	}
}
