package store

import (
	"testing"

	"loxilb/internal/lb"
)

// TestReach: the service is the one that the data path would find.
func TestReach(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	mustCommit(t, s, "rest", put(
		service(t, "10.0.0.1:80/tcp endpoints=1.1.1.1:1"),
		service(t, "10.0.0.1:80/tcp/mark=7 endpoints=1.1.1.1:1"),
		service(t, "10.0.0.1:70-90/tcp endpoints=1.1.1.1:1"),
		service(t, "10.0.0.1:1-65535/tcp endpoints=1.1.1.1:1"),
		service(t, "10.0.0.1:1-65535/udp/mark=7 endpoints=1.1.1.1:1"),
		service(t, "10.0.0.1:53/udp endpoints=1.1.1.1:1"),
		service(t, "10.0.0.1:0/icmp endpoints=1.1.1.1:0"),
	))
	for _, c := range []struct{ key, want string }{
		{"10.0.0.1:80/tcp", "10.0.0.1:80/tcp"},
		{"10.0.0.1:80/tcp/mark=7", "10.0.0.1:80/tcp/mark=7"},
		{"10.0.0.1:80/tcp/mark=8", "10.0.0.1:80/tcp"},
		{"10.0.0.1:81/tcp", "10.0.0.1:70-90/tcp"},
		{"10.0.0.1:80-81/tcp", "10.0.0.1:70-90/tcp"},
		{"10.0.0.1:91/tcp", "10.0.0.1:1-65535/tcp"},
		{"10.0.0.1:80-91/tcp", "10.0.0.1:1-65535/tcp"},
		{"10.0.0.1:53/udp/mark=7", "10.0.0.1:1-65535/udp/mark=7"},
		{"10.0.0.1:53/udp", "10.0.0.1:53/udp"},
		{"10.0.0.1:54/udp", ""},
		{"10.0.0.1:0/icmp", "10.0.0.1:0/icmp"},
		{"10.0.0.2:80/tcp", ""},
	} {
		k, err := lb.ParseKey(c.key)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := s.Snapshot().Reach(k)
		if ok != (c.want != "") || ok && got.Key.String() != c.want {
			t.Errorf("%s: %v, %v, want %q", c.key, got.Key, ok, c.want)
		}
	}
}

// TestLoops: a service may be the endpoint of another, but not, whichever way, of itself; whatever was there before.
func TestLoops(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	a, b, c := service(t, "10.0.0.1:80/tcp endpoints=10.0.0.2:80,1.1.1.1:1"), service(t, "10.0.0.2:80/tcp endpoints=10.0.0.3:85"),
		service(t, "10.0.0.3:80-90/tcp endpoints=10.0.0.1:80")
	mustCommit(t, s, "rest", put(a, b))
	before := dump(s.Snapshot())
	const want = `endpoints "10.0.0.3:80-90/tcp" lead back to the service itself, by way of other services (allowed: endpoints that do not)`
	if _, err := s.Commit("rest", put(c)); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	wantDump(t, s.Snapshot(), before)
	// what matters is the whole: b goes elsewhere, so c may come
	mustCommit(t, s, "rest", put(c, service(t, "10.0.0.2:80/tcp endpoints=1.1.1.2:1")))
	// one address, another port or protocol, is no loop
	mustCommit(t, s, "rest", put(service(t, "10.0.0.4:80/tcp endpoints=10.0.0.4:81"), service(t, "10.0.0.4:81/udp endpoints=10.0.0.4:80")))
}
