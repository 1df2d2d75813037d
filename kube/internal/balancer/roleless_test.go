package balancer

import (
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"
)

// TestRoleless checks that a balancer which refuses its role in many elections is one line in the
// log, and gets the role later.
func TestRoleless(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	f := newFleet(t, Options{Roles: Roles{VIP: netip.IPv4Unspecified(), Instances: 1}}, Access{}, r)
	var lines atomic.Int32
	f.Log = funcr.New(func(_, text string) {
		if strings.Contains(text, "cannot set the role") {
			lines.Add(1)
		}
	}, funcr.Options{})
	if err := f.round(t); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f.members[r.URL].roles = map[string]assignedRole{}
		r.changeStatus.Store(http.StatusServiceUnavailable)
		elected := newElection()
		lines.Store(0)
		for range 10 {
			f.electOnce(t.Context(), elected)
		}
		if n := lines.Load(); n != 1 {
			t.Errorf("%d lines of the log are about a balancer that refuses its role, want 1", n)
		}
		r.changeStatus.Store(0)
		f.electOnce(t.Context(), elected)
		if got := masters(t, f, []*remote{r}); got != "0:0" {
			t.Errorf("the MASTERs are %q", got)
		}
	}
}
