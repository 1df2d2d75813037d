package reconcile

import (
	"slices"
	"testing"
)

// TestServiceAsEndpoint: a change of a service is one of those that have it for an endpoint, near or far, too.
// Endpoints are those that packets go to.
func TestServiceAsEndpoint(t *testing.T) {
	t.Parallel()
	const (
		outer  = "10.0.0.1:80/tcp endpoints=10.0.0.2:80"
		middle = "10.0.0.2:80/tcp endpoints=10.0.0.3:80,192.168.1.2:80"
		inner  = "10.0.0.3:80/tcp endpoints=192.168.1.3:80"
		other  = "10.0.0.4:80/tcp endpoints=192.168.1.3:80"
	)
	hosts := func(b *bench, want ...string) {
		t.Helper()
		b.eventually("the endpoints", func() bool {
			var got []string
			for _, a := range b.hosts {
				got = append(got, a.String())
			}
			return slices.Equal(got, want)
		})
	}
	for _, start := range [][]string{nil, {middle, outer, other}} { // in steps, and at the start
		b := newBench(t, newWorld(), start...)
		b.wait(b.put(middle, outer, other))
		b.took()
		hosts(b, "10.0.0.3", "192.168.1.2", "192.168.1.3")
		b.wait(b.put(inner))
		b.wantEvents("put 10.0.0.1:80/tcp", "put 10.0.0.2:80/tcp", "put 10.0.0.3:80/tcp", "own [10.0.0.3]")
		hosts(b, "192.168.1.2", "192.168.1.3")
		b.wait(b.put(other + " name=x"))
		b.wantEvents("put 10.0.0.4:80/tcp")
		b.wait(b.put("10.0.0.2:80/tcp endpoints=192.168.1.5:80"))
		b.wantEvents("put 10.0.0.1:80/tcp", "put 10.0.0.2:80/tcp")
		hosts(b, "192.168.1.3", "192.168.1.5")
		b.wait(b.delete("10.0.0.2:80/tcp"))
		b.wantEvents("delete 10.0.0.2:80/tcp", "put 10.0.0.1:80/tcp", "give up [10.0.0.2]")
		hosts(b, "10.0.0.2", "192.168.1.3")
	}
}
