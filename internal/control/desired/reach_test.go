package desired_test

import (
	"testing"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// TestReach checks that Reach finds the same service as the data path.
func TestReach(t *testing.T) {
	t.Parallel()
	s := open(t, "")
	mustCommit(t, s, "rest", put(s,
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
		got, ok := s.Services.Reach(s.Snapshot(), k)
		if ok != (c.want != "") || ok && got.Key.String() != c.want {
			t.Errorf("%s: %v, %v, want %q", c.key, got.Key, ok, c.want)
		}
	}
}

// TestSecondary checks that an address, port, protocol and mark belong to one service, as its VIP
// or as an additional one.
func TestSecondary(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	a := service(t, "10.0.0.1:80/tcp secips=10.0.0.2,10.0.0.3 endpoints=1.1.1.1:1")
	mustCommit(t, s, "rest", put(s, a, service(t, "10.0.0.9:80-89/tcp secips=10.0.0.8 endpoints=1.1.1.1:1")))
	before := dump(s)
	const other = " (allowed: an address on which no other service has these ports, protocol and mark)"
	for line, want := range map[string]string{
		"10.0.0.2:80/tcp endpoints=1.1.1.1:1": `VIP "10.0.0.2" is a secondary VIP of service 10.0.0.1:80/tcp, with the same ports ` +
			`(allowed: another VIP, or other ports)`,
		"10.0.0.4:80/tcp secips=10.0.0.1 endpoints=1.1.1.1:1": `secondary VIP "10.0.0.1" already has the ports of service 10.0.0.1:80/tcp` + other,
		"10.0.0.4:80/tcp secips=10.0.0.3 endpoints=1.1.1.1:1": `secondary VIP "10.0.0.3" already has the ports of service 10.0.0.1:80/tcp` + other,
		"10.0.0.8:85-95/tcp endpoints=1.1.1.1:1": `VIP "10.0.0.8" is a secondary VIP of service 10.0.0.9:80-89/tcp, with the same ` +
			`ports (allowed: another VIP, or other ports)`,
		"10.0.0.4:85-95/tcp secips=10.0.0.8 endpoints=1.1.1.1:1": `secondary VIP "10.0.0.8" already has the ports of service 10.0.0.9:80-89/tcp` + other,
		"10.0.0.4:85-95/tcp secips=10.0.0.9 endpoints=1.1.1.1:1": `secondary VIP "10.0.0.9" already has the ports of service 10.0.0.9:80-89/tcp` + other,
	} {
		if _, _, err := s.Commit("rest", put(s, service(t, line))); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want\n%s", line, err, want)
		}
		wantDump(t, s, before)
	}
	mustCommit(t, s, "rest", put(s, service(t, "10.0.0.2:81/tcp secips=10.0.0.1 endpoints=1.1.1.1:1"), service(t, "10.0.0.2:80/udp endpoints=1.1.1.1:1")))
	k := a.Key
	k.VIP = a.Secondary[1]
	if got, ok := s.Services.Reach(s.Snapshot(), k); !ok || got.Key != a.Key {
		t.Errorf("%s is reached at %s: %v, %v", a.Key, k, got.Key, ok)
	}
	// in one commit, an address can move between services, and a deleted service has none
	b := service(t, "10.0.0.4:80/tcp secips=10.0.0.3 endpoints=1.1.1.1:1")
	a.Secondary = a.Secondary[:1]
	mustCommit(t, s, "rest", put(s, b, a))
	mustCommit(t, s, "rest", func(tx *store.Tx) error { return s.Services.Delete(tx, a.Key) })
	mustCommit(t, s, "rest", put(s, service(t, "10.0.0.2:80/tcp endpoints=1.1.1.1:1")))
	before = dump(s)
	closeState(t, s)
	s = open(t, dir)
	wantDump(t, s, before)
	if _, _, err := s.Commit("rest", put(s, service(t, "10.0.0.3:80/tcp endpoints=1.1.1.1:1"))); err == nil {
		t.Error("a restart lost a secondary VIP")
	}
}
