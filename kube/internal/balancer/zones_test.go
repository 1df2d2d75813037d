package balancer

import (
	"strings"
	"testing"

	"loxilb/kube/internal/translate"
)

// TestZones checks that controllers of two zones with the same owner can share a balancer: neither
// deletes the other's services. A controller whose zone has changed takes over the services of its
// Services.
func TestZones(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	first, second := newFleet(t, Options{}, Access{}, r), newFleet(t, Options{}, Access{}, r)
	second.Zone = "aws"
	first.Set(numbered(1, 1))
	name, desired := numbered(2, 1)
	rename := func(d Desired) Desired {
		entry := d.Common[0]
		entry.Spec = []byte(strings.ReplaceAll(string(entry.Spec), translate.Instance("llb", 0), translate.Instance("aws", 0)))
		return Desired{Common: []translate.Entry{entry}}
	}
	second.Set(name, rename(desired))
	for range 2 {
		for _, f := range []*Fleet{first, second} {
			f.Complete()
			for _, m := range f.list() {
				m.synced = false // all services are compared
			}
			if err := f.round(t); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := r.names(); got != "default_s1:llb-inst0 default_s2:aws-inst0" {
		t.Errorf("the balancer has %q", got)
	}

	name, desired = numbered(1, 1)
	changed := newFleet(t, Options{}, Access{}, r)
	changed.Zone = "aws"
	changed.Set(name, rename(desired))
	if err := changed.round(t); err != nil {
		t.Fatal(err)
	}
	if s := changed.State(name); !s.Programmed || !strings.Contains(r.names(), "default_s1:aws-inst0") {
		t.Errorf("after a change of the zone, the state is %+v, and the balancer has %q", s, r.names())
	}
}
