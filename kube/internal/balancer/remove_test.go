package balancer

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestStuckDeletion makes a balancer refuse to delete one of many services, as it does while a
// service carries its administrator's session. The others are deleted, the balancer still counts as
// answering, and a Service that is created meanwhile is served.
func TestStuckDeletion(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	var stuck []string
	f := newFleet(t, Options{Stuck: func(service types.NamespacedName, why string) {
		stuck = append(stuck, service.Name+" "+why)
	}}, Access{}, r)
	const count = 100
	var all []types.NamespacedName
	for i := range count {
		name, desired := numbered(i, 1)
		f.Set(name, desired)
		all = append(all, name)
	}
	f.Complete()
	if err := f.round(t); err != nil {
		t.Fatal(err)
	}
	r.refuse(func(body string) int {
		if strings.Contains(body, `"remove":true`) && strings.Contains(body, `"20.20.0.7"`) {
			return http.StatusConflict
		}
		return 0
	})
	for _, name := range all {
		f.Delete(name)
	}
	f.Set(numbered(count, 1))
	before := r.applied.Load()
	for range 3 {
		if err := f.round(t); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.applied.Load() - before; n > 30 {
		t.Errorf("there were %d requests", n)
	}
	if got := r.names(); got != "default_s100:llb-inst0 default_s7:llb-inst0" {
		t.Errorf("the balancer has %q", got)
	}
	if !f.members[r.URL].answers() || f.Gone(all[7]) || !f.Gone(all[6]) {
		t.Error("the balancer is gone, or the wrong services")
	}
	if len(stuck) != 1 || !strings.HasPrefix(stuck[0], "s7 "+r.URL+" does not delete 20.20.0.7:80/tcp: ") {
		t.Errorf("Services with stuck deletions are reported as %q", stuck)
	}
	r.refuse(nil)
	if err := f.round(t); err != nil || !f.Gone(all[7]) || len(f.members[r.URL].undeletable) > 0 {
		t.Errorf("in the end, a service or a record of its removal remains: %v", err)
	}
}
