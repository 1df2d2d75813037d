package store

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/lb"
)

func openStore(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func closeStore(t testing.TB, s *Store) {
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

// numbered is the i-th service of a big state, with n endpoints.
func numbered(i, n int) lb.Service {
	s := lb.Service{Key: lb.Key{VIP: netip.AddrFrom4([4]byte{20, 0, byte(i >> 8), byte(i)}), Port: 80, Protocol: lb.TCP}}
	s.Name = fmt.Sprintf("service-%d", i)
	for j := range n {
		a := netip.AddrFrom4([4]byte{10, byte(i), byte(j >> 8), byte(j)})
		s.Endpoints = append(s.Endpoints, lb.Endpoint{Addr: a, Port: 8080, Weight: 1})
	}
	return s
}

func put(services ...lb.Service) func(*Tx) error {
	return func(tx *Tx) error {
		for _, s := range services {
			if err := tx.Put(s); err != nil {
				return err
			}
		}
		return nil
	}
}

func mustCommit(t testing.TB, s *Store, owner string, edit func(*Tx) error) uint64 {
	t.Helper()
	revision, err := s.Commit(owner, edit)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// dump is a state as text: what tests compare.
func dump(s *Snapshot) string {
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d, %d services, %d endpoints\n", s.Revision(), s.Len(), s.Endpoints())
	for one := range s.All() {
		owner, _ := s.Owner(one.Key)
		fmt.Fprintf(&b, "%s: %s\n", owner, one)
	}
	return b.String()
}

func wantDump(t *testing.T, s *Snapshot, want string) {
	t.Helper()
	if diff := cmp.Diff(want, dump(s)); diff != "" {
		t.Fatalf("-want +got\n%s", diff)
	}
}

const (
	web  = "10.0.0.1:80/tcp mode=default select=rr endpoints=192.168.1.10:8080,192.168.1.11:8080:5 idle=300s managed=true name=web"
	web2 = "10.0.0.1:80/tcp mode=default select=priority endpoints=192.168.1.10:8080 name=web"
	// one whose range, mark and sources came with version 2
	ranged = "10.0.0.1:8080-8090/tcp/mark=7 mode=default select=rr endpoints=192.168.1.10:9080-9090 sources=10.0.0.0/8,192.168.0.0/16"
	dns    = `[2001:db8::1]:53/udp mode=default select=rr endpoints=[2001:db8::2]:53 name="d n s"`
)

func TestCommitAndReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/made/by/open"
	s := openStore(t, dir)
	wantDump(t, s.Snapshot(), "revision 0, 0 services, 0 endpoints\n")
	mustCommit(t, s, "rest", put(service(t, web), service(t, dns)))
	mustCommit(t, s, "rest", put(service(t, web2)))
	want := "revision 2, 2 services, 2 endpoints\nrest: " + web2 + "\nrest: " + dns + "\n"
	wantDump(t, s.Snapshot(), want)
	for range 3 { // from the journal, then from a snapshot
		closeStore(t, s)
		s = openStore(t, dir)
		wantDump(t, s.Snapshot(), want)
	}
	got := s.Snapshot().ByName("d n s")
	if len(got) != 1 || got[0].String() != dns {
		t.Fatalf("by name: %v", got)
	}
	if rev := mustCommit(t, s, "rest", func(tx *Tx) error { return tx.Delete(got[0].Key) }); rev != 3 {
		t.Errorf("revision %d after two and a restart", rev)
	}
	if got := s.Snapshot().ByName("d n s"); len(got) > 0 {
		t.Errorf("a deleted name is found: %v", got)
	}
}

func TestCommitRefuses(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	mustCommit(t, s, "rest", put(service(t, web)))
	before := dump(s.Snapshot())
	other := service(t, "10.0.0.2:80/tcp endpoints=1.1.1.1:1 name=web")
	cases := []struct {
		name, owner string
		edit        func(*Tx) error
		is          error
		want        string
	}{
		{"owner of a put", "kube", put(service(t, web2)), ErrOwner, `service 10.0.0.1:80/tcp belongs to another owner, "rest"`},
		{"owner of a delete", "kube", func(tx *Tx) error { return tx.Delete(service(t, web).Key) }, ErrOwner,
			`service 10.0.0.1:80/tcp belongs to another owner, "rest"`},
		{"nothing to delete", "rest", func(tx *Tx) error { return tx.Delete(other.Key) }, ErrNotFound, "service 10.0.0.2:80/tcp does not exist"},
		{"invalid", "rest", put(service(t, "10.0.0.2:80/tcp")), nil, `endpoints "0" is too few (allowed: 1 to 4096)`},
		{"no owner", "", put(other), nil, "a commit needs an owner"},
		{"panic", "rest", func(*Tx) error { panic("oops") }, nil, `edit of "rest" panicked: oops`},
		{"half done", "rest", func(tx *Tx) error {
			if err := tx.Put(service(t, dns)); err != nil {
				return err
			}
			return tx.Put(service(t, "10.0.0.3:0/tcp"))
		}, nil, `port "0" is zero (allowed: 1 to 65535)`},
	}
	for _, c := range cases {
		rev, err := s.Commit(c.owner, c.edit)
		if rev != 0 || err == nil || err.Error() != c.want || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %d, %v, want %s", c.name, rev, err, c.want)
		}
		wantDump(t, s.Snapshot(), before)
	}
	closeStore(t, s)
	if _, err := s.Commit("rest", put(service(t, dns))); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestCommitOfNothing(t *testing.T) {
	t.Parallel()
	s := openStore(t, t.TempDir())
	mustCommit(t, s, "rest", put(service(t, web)))
	head, size := s.Snapshot(), s.disk.size
	for name, edit := range map[string]func(*Tx) error{
		"empty": func(*Tx) error { return nil },
		"same":  put(service(t, web)),
		"there and back": func(tx *Tx) error {
			if err := tx.Put(service(t, web2)); err != nil || !tx.Changed() {
				return fmt.Errorf("not changed, %w", err)
			}
			return tx.Put(service(t, web))
		},
	} {
		rev, err := s.Commit("rest", func(tx *Tx) error {
			err := edit(tx)
			if tx.Changed() {
				t.Errorf("%s: says it changes something", name)
			}
			return err
		})
		if rev != 1 || err != nil || s.Snapshot() != head || s.disk.size != size {
			t.Errorf("%s: revision %d, %v, journal %d bytes more", name, rev, err, s.disk.size-size)
		}
	}
}

func TestTxSeesItsChanges(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	a, b := numbered(1, 1), numbered(2, 2)
	mustCommit(t, s, "rest", put(a, b))
	mustCommit(t, s, "rest", func(tx *Tx) error {
		a.Name, b.Name = b.Name, a.Name // a swap, in one transaction
		if err := put(a, b)(tx); err != nil {
			return err
		}
		for name, want := range map[string]lb.Key{a.Name: a.Key, b.Name: b.Key} {
			if got := tx.ByName(name); len(got) != 1 || got[0].Key != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		n := 0
		for one := range tx.All() {
			n++
			if err := tx.Delete(one.Key); err != nil {
				return err
			}
		}
		if _, ok := tx.Get(a.Key); ok || n != 2 {
			t.Errorf("%d services deleted, one is left: %v", n, ok)
		}
		if got := tx.ByName(a.Name); len(got) > 0 {
			t.Errorf("the name of a deleted service is found: %v", got)
		}
		return put(a, b)(tx)
	})
	for _, one := range []lb.Service{a, b} {
		if got := s.Snapshot().ByName(one.Name); len(got) != 1 || !got[0].Equal(one) {
			t.Errorf("%v, want %v", got, one)
		}
	}
}

// The ports of an application share its name; one name that begins with another is not that one.
func TestNamesAreShared(t *testing.T) {
	t.Parallel()
	s := openStore(t, t.TempDir())
	keys := func(list []lb.Service) string {
		var b strings.Builder
		for _, one := range list {
			fmt.Fprintln(&b, one.Key)
		}
		return b.String()
	}
	named := func(key, name string) lb.Service { return service(t, key+" endpoints=1.1.1.1:1 name="+name) }
	mustCommit(t, s, "rest", put(
		named("10.0.0.1:80/tcp", "web"), named("10.0.0.2:80/tcp", "web:1"), named("10.0.0.1:80/udp", "web"),
		service(t, "10.0.0.3:80/tcp endpoints=1.1.1.1:1"),
	))
	mustCommit(t, s, "rest", func(tx *Tx) error {
		if err := tx.Put(named("10.0.0.1:443/tcp", "web")); err != nil {
			return err
		}
		if err := tx.Put(named("10.0.0.1:80/udp", "dns")); err != nil {
			return err
		}
		if got, want := keys(tx.ByName("web")), "10.0.0.1:80/tcp\n10.0.0.1:443/tcp\n"; got != want {
			t.Errorf("in the transaction: %s, want %s", got, want)
		}
		return nil
	})
	for name, want := range map[string]string{
		"web": "10.0.0.1:80/tcp\n10.0.0.1:443/tcp\n", "web:1": "10.0.0.2:80/tcp\n", "dns": "10.0.0.1:80/udp\n",
		"we": "", "": "", "web:": "",
	} {
		if got := keys(s.Snapshot().ByName(name)); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

func TestSnapshotsNeverChange(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	mine := service(t, web)
	mustCommit(t, s, "rest", put(mine))
	old := s.Snapshot()
	want := dump(old)
	mine.Endpoints[0].Port = 1 // the caller's slice is its own
	for i := range 1000 {
		mustCommit(t, s, "rest", put(numbered(i, 1)))
	}
	mustCommit(t, s, "rest", func(tx *Tx) error { return tx.Delete(mine.Key) })
	wantDump(t, old, want)
	for range s.Snapshot().All() { // a loop may end early
		break
	}
}

func TestOrderOfAll(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	for _, k := range []string{"[::2]:1/tcp", "10.0.0.1:80/udp", "9.0.0.1:80/udp", "10.0.0.1:80/tcp", "[2001:db8::1]:1/tcp", "10.0.0.1:7/udp"} {
		e := "1.1.1.1:1"
		if strings.HasPrefix(k, "[") {
			e = "[2001:db8::9]:1"
		}
		mustCommit(t, s, "rest", put(service(t, k+" endpoints="+e)))
	}
	var keys []lb.Key
	for one := range s.Snapshot().All() {
		keys = append(keys, one.Key)
	}
	if len(keys) != 6 || !slices.IsSortedFunc(keys, lb.Key.Compare) {
		t.Errorf("%v", keys)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	changed := s.Changed()
	if _, keys, ok := s.Since(0); !ok || len(keys) != 0 {
		t.Errorf("nothing has changed: %v %v", keys, ok)
	}
	if _, _, ok := s.Since(1); ok {
		t.Error("the future is known")
	}
	a, b := numbered(1, 1), numbered(2, 1)
	mustCommit(t, s, "rest", put(b))
	mustCommit(t, s, "rest", put(a))
	mustCommit(t, s, "rest", func(tx *Tx) error { return tx.Delete(b.Key) })
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Fatal("no word of a change")
	}
	for rev, want := range [][]lb.Key{{a.Key, b.Key}, {a.Key, b.Key}, {b.Key}, nil} {
		snap, keys, ok := s.Since(uint64(rev))
		if !ok || !slices.Equal(keys, want) || snap.Revision() != 3 {
			t.Errorf("since %d: revision %d, %v %v, want %v", rev, snap.Revision(), keys, ok, want)
		}
	}
	select {
	case <-s.Changed():
		t.Error("word of a change that was not")
	default:
	}
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	var h history
	h.reset(100)
	for i := range uint64(20) {
		h.add(101+i, make([]lb.Key, maxHistoryKeys/10))
	}
	if h.keys > maxHistoryKeys || len(h.commits) != 10 {
		t.Errorf("%d commits, %d keys", len(h.commits), h.keys)
	}
	for rev, want := range map[uint64]bool{99: false, 109: false, 110: true, 119: true, 120: true, 121: false} {
		if _, ok := h.since(rev); ok != want {
			t.Errorf("since %d: %v", rev, ok)
		}
	}
	h.add(121, make([]lb.Key, maxHistoryKeys+1)) // too much for it at once
	if _, ok := h.since(120); ok || len(h.commits) != 0 {
		t.Error("a commit over the bound is remembered")
	}
	if _, ok := h.since(121); !ok {
		t.Error("the present is forgotten")
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	mustCommit(t, s, "rest", func(tx *Tx) error {
		for i := range lb.MaxServices {
			if err := tx.Put(numbered(i, 4)); err != nil {
				return err
			}
		}
		return nil
	})
	if n, e := s.Snapshot().Len(), s.Snapshot().Endpoints(); n != lb.MaxServices || e != lb.MaxEndpoints {
		t.Fatalf("%d services, %d endpoints", n, e)
	}
	one := service(t, "10.0.0.1:80/tcp endpoints=1.1.1.1:1")
	_, err := s.Commit("rest", put(one))
	if !errors.Is(err, ErrLimit) || err.Error() != "a total of 65537 services is over the limit of 65536" {
		t.Error(err)
	}
	_, err = s.Commit("rest", put(numbered(0, 5)))
	if !errors.Is(err, ErrLimit) || err.Error() != "a total of 262145 endpoints is over the limit of 262144" {
		t.Error(err)
	}
	mustCommit(t, s, "rest", func(tx *Tx) error {
		return errors.Join(tx.Put(one), tx.Delete(numbered(7, 0).Key))
	})
}
