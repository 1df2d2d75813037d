package objects_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/control/store"
)

// TestAge checks the headers about shared objects while the shared store is unavailable: their age
// since the store's last answer. The age is unknown if the store has never answered: the daemon may
// have started hours after it failed.
func TestAge(t *testing.T) {
	t.Parallel()
	const minute = "2026-11-30T12:38:00Z"
	began := time.Date(2026, 11, 30, 12, 38, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		remote  store.RemoteStatus
		aged    bool
		warning string
	}{
		"ready":         {store.RemoteStatus{Ready: true, Contact: began}, false, ""},
		"away":          {store.RemoteStatus{Err: errors.New("refused"), Contact: began, Since: began.Add(time.Hour)}, true, "as of " + minute},
		"away at start": {store.RemoteStatus{Err: errors.New("refused"), Since: began}, false, "from before " + minute},
	} {
		h := http.Header{}
		objects.SetAge(h, &tc.remote)
		seconds, err := strconv.Atoi(h.Get("Age"))
		if aged := err == nil && seconds > 0; aged != tc.aged || !strings.Contains(h.Get("Warning"), tc.warning) || (tc.warning == "") != (h.Get("Warning") == "") {
			t.Errorf("%s: the headers are %v", name, h)
		}
	}
}
