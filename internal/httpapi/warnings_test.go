package httpapi

import (
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An edit that runs three times, as that of a change which may cut somebody off does, warns once.
func TestWarningsOnce(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	var shared warnings
	for range 3 {
		shared.add("service %s does not exist", "a")
		shared.write(w)
		var own warnings
		own.add("weight has no effect")
		own.write(w)
	}
	if diff := cmp.Diff([]string{`299 loxilb "service a does not exist"`, `299 loxilb "weight has no effect"`}, w.Header().Values("Warning")); diff != "" {
		t.Error(diff)
	}
}
