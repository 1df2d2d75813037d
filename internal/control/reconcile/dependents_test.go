package reconcile

import (
	"slices"
	"testing"
)

// TestServiceAsEndpoint checks that a change of a service also changes the services that have it as
// an endpoint, directly or indirectly. Endpoints is notified of the endpoints that packets go to.
func TestServiceAsEndpoint(t *testing.T) {
	t.Parallel()
	const (
		outer  = "10.0.0.1:80/tcp endpoints=10.0.0.2:80"
		middle = "10.0.0.2:80/tcp endpoints=10.0.0.3:80,192.168.1.2:80"
		inner  = "10.0.0.3:80/tcp endpoints=192.168.1.3:80"
		other  = "10.0.0.4:80/tcp endpoints=192.168.1.3:80"
	)
	hosts := func(r *rig, want ...string) {
		t.Helper()
		r.eventually("the endpoints", func() bool {
			var got []string
			for _, a := range r.hosts {
				got = append(got, a.String())
			}
			return slices.Equal(got, want)
		})
	}
	for _, start := range [][]string{nil, {middle, outer, other}} { // in steps, and at a start
		r := newRig(t, newFakeKernel(), start...)
		r.wait(r.put(middle, outer, other))
		r.drainEvents()
		hosts(r, "10.0.0.3", "192.168.1.2", "192.168.1.3")
		r.wait(r.put(inner))
		r.wantEvents("put 10.0.0.1:80/tcp", "put 10.0.0.2:80/tcp", "put 10.0.0.3:80/tcp", "acquire [10.0.0.3]")
		hosts(r, "192.168.1.2", "192.168.1.3")
		r.wait(r.put(other + " name=x"))
		r.wantEvents("put 10.0.0.4:80/tcp")
		r.wait(r.put("10.0.0.2:80/tcp endpoints=192.168.1.5:80"))
		r.wantEvents("put 10.0.0.1:80/tcp", "put 10.0.0.2:80/tcp")
		hosts(r, "192.168.1.3", "192.168.1.5")
		r.wait(r.delete("10.0.0.2:80/tcp"))
		r.wantEvents("delete 10.0.0.2:80/tcp", "put 10.0.0.1:80/tcp", "release [10.0.0.2]")
		hosts(r, "10.0.0.2", "192.168.1.3")
	}
}
