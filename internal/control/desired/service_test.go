package desired_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

func open(t testing.TB, dir string) *desired.State {
	t.Helper()
	s, err := desired.Open(dir, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func closeState(t testing.TB, s *desired.State) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func service(t testing.TB, line string) lb.Service {
	t.Helper()
	s, err := lb.ParseService(line)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// numbered returns service i of a large state, with n endpoints.
func numbered(i, n int) lb.Service {
	s := lb.Service{Key: lb.Key{VIP: netip.AddrFrom4([4]byte{20, 0, byte(i >> 8), byte(i)}), Port: 80, Protocol: lb.TCP}}
	s.Name = fmt.Sprintf("service-%d", i)
	for j := range n {
		a := netip.AddrFrom4([4]byte{10, byte(i), byte(j >> 8), byte(j)})
		s.Endpoints = append(s.Endpoints, lb.Endpoint{Addr: a, Port: 8080, Weight: 1})
	}
	return s
}

func put(s *desired.State, services ...lb.Service) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		for _, one := range services {
			if err := s.Services.Put(tx, one); err != nil {
				return err
			}
		}
		return nil
	}
}

func mustCommit(t testing.TB, s *desired.State, owner string, edit func(*store.Tx) error) uint64 {
	t.Helper()
	revision, _, err := s.Commit(owner, edit)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// dump returns a state as text, for comparison.
func dump(s *desired.State) string {
	var b strings.Builder
	at := s.Snapshot()
	fmt.Fprintf(&b, "revision %d, %d services, %d endpoints\n", at.Revision(), s.Services.Len(at), s.Services.Endpoints(at))
	for one := range s.Services.All(at) {
		owner, _ := s.Services.Owner(at, one.Key)
		fmt.Fprintf(&b, "%s: %s\n", owner, one)
	}
	return b.String()
}

func wantDump(t *testing.T, s *desired.State, want string) {
	t.Helper()
	if diff := cmp.Diff(want, dump(s)); diff != "" {
		t.Fatalf("-want +got\n%s", diff)
	}
}

const (
	web  = "10.0.0.1:80/tcp mode=default select=rr endpoints=192.168.1.10:8080,192.168.1.11:8080:5 idle=300s managed=true name=web"
	web2 = "10.0.0.1:80/tcp mode=default select=priority endpoints=192.168.1.10:8080 name=web"
	// one with a range, mark and sources, which came with version 2
	ranged = "10.0.0.1:8080-8090/tcp/mark=7 mode=default select=rr endpoints=192.168.1.10:9080-9090 sources=10.0.0.0/8,192.168.0.0/16"
	dns    = `[2001:db8::1]:53/udp mode=default select=rr endpoints=[2001:db8::2]:53 name="d n s"`
)

func TestCommitAndReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/made/by/open"
	s := open(t, dir)
	wantDump(t, s, "revision 0, 0 services, 0 endpoints\n")
	mustCommit(t, s, "rest", put(s, service(t, web), service(t, dns)))
	mustCommit(t, s, "rest", put(s, service(t, web2)))
	want := "revision 2, 2 services, 2 endpoints\nrest: " + web2 + "\nrest: " + dns + "\n"
	wantDump(t, s, want)
	for range 3 { // first from the journal, then from a snapshot
		closeState(t, s)
		s = open(t, dir)
		wantDump(t, s, want)
	}
	got := s.Services.ByName(s.Snapshot(), "d n s")
	if len(got) != 1 || got[0].String() != dns {
		t.Fatalf("found by name: %v", got)
	}
	if rev := mustCommit(t, s, "rest", func(tx *store.Tx) error { return s.Services.Delete(tx, got[0].Key) }); rev != 3 {
		t.Errorf("revision %d after two and a restart", rev)
	}
	if got := s.Services.ByName(s.Snapshot(), "d n s"); len(got) > 0 {
		t.Errorf("a deleted name is found: %v", got)
	}
}

func TestCommitRefuses(t *testing.T) {
	t.Parallel()
	s := open(t, "")
	mustCommit(t, s, "rest", put(s, service(t, web)))
	before := dump(s)
	other := service(t, "10.0.0.2:80/tcp endpoints=1.1.1.1:1 name=web")
	cases := []struct {
		name, owner string
		edit        func(*store.Tx) error
		is          error
		want        string
	}{
		{"owner of a put", "kube", put(s, service(t, web2)), store.ErrOwner, `service 10.0.0.1:80/tcp belongs to another owner, "rest"`},
		{"owner of a delete", "kube", func(tx *store.Tx) error { return s.Services.Delete(tx, service(t, web).Key) }, store.ErrOwner,
			`service 10.0.0.1:80/tcp belongs to another owner, "rest"`},
		{"nothing to delete", "rest", func(tx *store.Tx) error { return s.Services.Delete(tx, other.Key) }, store.ErrNotFound, "service 10.0.0.2:80/tcp does not exist"},
		{
			"every local address twice", "rest", put(s, service(t, "10.0.0.2:80/tcp mode=hostonearm endpoints=10.1.0.1:80"),
				service(t, "10.0.0.3:80/tcp mode=hostonearm endpoints=10.1.0.1:80")), nil,
			`mode "hostonearm" serves every local address, where service 10.0.0.3:80/tcp already has these ports (allowed: mode onearm, or ports that no ` +
				`other service has at every local address)`,
		},
		{
			"every local address, and with a VIP", "rest", put(s,
				service(t, "0.0.0.0:80/tcp mode=hostonearm endpoints=10.1.0.1:80"),
				service(t, "10.0.0.3:80/tcp mode=hostonearm endpoints=10.1.0.1:80")), nil,
			`mode "hostonearm" serves every local address, where service 10.0.0.3:80/tcp already has these ports (allowed: mode onearm, or ports that no ` +
				`other service has at every local address)`,
		},
		{"invalid", "rest", put(s, service(t, "10.0.0.2:80/tcp")), nil, `endpoints "0" is too few (allowed: 1 to 4096)`},
		{"ranges that overlap", "rest", put(s, service(t, "10.0.0.3:100-200/tcp endpoints=1.1.1.1:100"), service(t, "10.0.0.3:200-300/tcp endpoints=1.1.1.1:200")), nil,
			`ports "200-300" overlaps with service 10.0.0.3:100-200/tcp (allowed: ports that no other range of the VIP, protocol and mark has)`},
		{"TFTP servers at three ports", "rest", put(s, service(t, "10.0.0.4:69/udp helper=tftp endpoints=1.1.1.1:69,1.1.1.2:1069"),
			service(t, "10.0.0.5:69/udp helper=tftp endpoints=1.1.1.1:2069")), nil,
			`helper "tftp" would have endpoints with ports 69, 1069, 2069 (allowed: 2 different ports, in all services together)`},
		{"no owner", "", put(s, other), nil, "a commit needs an owner"},
		{"panic", "rest", func(*store.Tx) error { panic("oops") }, nil, `edit of "rest" panicked: oops`},
		{"half done", "rest", func(tx *store.Tx) error {
			if err := s.Services.Put(tx, service(t, dns)); err != nil {
				return err
			}
			return s.Services.Put(tx, service(t, "10.0.0.3:0/tcp"))
		}, nil, `port "0" is zero (allowed: 1 to 65535)`},
	}
	for _, c := range cases {
		rev, _, err := s.Commit(c.owner, c.edit)
		if rev != 0 || err == nil || err.Error() != c.want || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %d, %v, want %s", c.name, rev, err, c.want)
		}
		wantDump(t, s, before)
	}
	closeState(t, s)
	if _, _, err := s.Commit("rest", put(s, service(t, dns))); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestTxSeesItsChanges(t *testing.T) {
	t.Parallel()
	s := open(t, "")
	a, b := numbered(1, 1), numbered(2, 2)
	mustCommit(t, s, "rest", put(s, a, b))
	mustCommit(t, s, "rest", func(tx *store.Tx) error {
		a.Name, b.Name = b.Name, a.Name // a swap, in one transaction
		if err := put(s, a, b)(tx); err != nil {
			return err
		}
		for name, want := range map[string]lb.Key{a.Name: a.Key, b.Name: b.Key} {
			if got := s.Services.ByName(tx, name); len(got) != 1 || got[0].Key != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		n := 0
		for one := range s.Services.All(tx) {
			n++
			if err := s.Services.Delete(tx, one.Key); err != nil {
				return err
			}
		}
		if _, ok := s.Services.Get(tx, a.Key); ok || n != 2 {
			t.Errorf("%d services deleted, one is left: %v", n, ok)
		}
		if got := s.Services.ByName(tx, a.Name); len(got) > 0 {
			t.Errorf("the name of a deleted service is found: %v", got)
		}
		return put(s, a, b)(tx)
	})
	for _, one := range []lb.Service{a, b} {
		if got := s.Services.ByName(s.Snapshot(), one.Name); len(got) != 1 || !got[0].Equal(one) {
			t.Errorf("the services named %s are %v, want %v", one.Name, got, one)
		}
	}
}

// TestSharedNames checks that the ports of an application share its name, and that a prefix of a
// name does not match.
func TestSharedNames(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	keys := func(list []lb.Service) string {
		var b strings.Builder
		for _, one := range list {
			fmt.Fprintln(&b, one.Key)
		}
		return b.String()
	}
	named := func(key, name string) lb.Service { return service(t, key+" endpoints=1.1.1.1:1 name="+name) }
	mustCommit(t, s, "rest", put(s,
		named("10.0.0.1:80/tcp", "web"), named("10.0.0.2:80/tcp", "web:1"), named("10.0.0.1:80/udp", "web"),
		service(t, "10.0.0.3:80/tcp endpoints=1.1.1.1:1"),
	))
	mustCommit(t, s, "rest", func(tx *store.Tx) error {
		if err := s.Services.Put(tx, named("10.0.0.1:443/tcp", "web")); err != nil {
			return err
		}
		if err := s.Services.Put(tx, named("10.0.0.1:80/udp", "dns")); err != nil {
			return err
		}
		if got, want := keys(s.Services.ByName(tx, "web")), "10.0.0.1:80/tcp\n10.0.0.1:443/tcp\n"; got != want {
			t.Errorf("in the transaction: %s, want %s", got, want)
		}
		return nil
	})
	for name, want := range map[string]string{
		"web": "10.0.0.1:80/tcp\n10.0.0.1:443/tcp\n", "web:1": "10.0.0.2:80/tcp\n", "dns": "10.0.0.1:80/udp\n",
		"we": "", "": "", "web:": "",
	} {
		if got := keys(s.Services.ByName(s.Snapshot(), name)); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

func TestOrderOfAll(t *testing.T) {
	t.Parallel()
	s := open(t, "")
	for _, k := range []string{"[::2]:1/tcp", "10.0.0.1:80/udp", "9.0.0.1:80/udp", "10.0.0.1:80/tcp", "[2001:db8::1]:1/tcp", "10.0.0.1:7/udp"} {
		e := "1.1.1.1:1"
		if strings.HasPrefix(k, "[") {
			e = "[2001:db8::9]:1"
		}
		mustCommit(t, s, "rest", put(s, service(t, k+" endpoints="+e)))
	}
	var keys []lb.Key
	for one := range s.Services.All(s.Snapshot()) {
		keys = append(keys, one.Key)
	}
	if len(keys) != 6 || !slices.IsSortedFunc(keys, lb.Key.Compare) {
		t.Errorf("got %v, want 6 keys in order", keys)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	s := open(t, "")
	mustCommit(t, s, "rest", func(tx *store.Tx) error {
		for i := range lb.MaxServices {
			if err := s.Services.Put(tx, numbered(i, 4)); err != nil {
				return err
			}
		}
		return nil
	})
	if n, e := s.Services.Len(s.Snapshot()), s.Services.Endpoints(s.Snapshot()); n != lb.MaxServices || e != lb.MaxEndpoints {
		t.Fatalf("%d services, %d endpoints", n, e)
	}
	one := service(t, "10.0.0.1:80/tcp endpoints=1.1.1.1:1")
	_, _, err := s.Commit("rest", put(s, one))
	if !errors.Is(err, store.ErrLimit) || err.Error() != "a total of 65537 services is over the limit of 65536" {
		t.Errorf(`got %v, want the error store.ErrLimit, the error "a total of 65537 services is over the limit of 65536"`,
			err)
	}
	_, _, err = s.Commit("rest", put(s, numbered(0, 5)))
	if !errors.Is(err, store.ErrLimit) || err.Error() != "a total of 262145 endpoints is over the limit of 262144" {
		t.Errorf(`got %v, want the error store.ErrLimit, the error "a total of 262145 endpoints is over the limit of 262144"`,
			err)
	}
	mustCommit(t, s, "rest", func(tx *store.Tx) error {
		return errors.Join(s.Services.Put(tx, one), s.Services.Delete(tx, numbered(7, 0).Key))
	})
}
