package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// node is a store with shared items and local rules.
type node struct {
	*Store
	t     *testing.T
	items Table[item]
	rules Table[rule]
	stop  func()
}

func openNode(t *testing.T, name, dir string, remote Remote, join Join) *node {
	t.Helper()
	kind := itemKind()
	kind.Shared = true
	n := &node{t: t, items: NewTable(kind), rules: NewTable(ruleKind(1))}
	s, err := open(osFiles{}, dir, slog.New(slog.DiscardHandler), []AnyTable{n.items, n.rules})
	if err != nil {
		t.Fatal(err)
	}
	s.loadRevisions()
	n.Store = s
	if remote == nil {
		n.stop = func() { closeStore(t, s) }
		return n
	}
	if err := n.Share(remote, name, join); err != nil {
		t.Fatal(err)
	}
	n.DescribeNode(func() RemoteNode { return RemoteNode{Version: "1.2"} }, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { n.Follow(ctx) })
	n.stop = sync.OnceFunc(func() { cancel(); following.Wait(); closeStore(t, s) })
	t.Cleanup(n.stop)
	return n
}

// put creates or changes items, and returns the error.
func (n *node) put(list ...item) error {
	_, _, err := n.Commit("rest", func(tx *Tx) error {
		for _, one := range list {
			if err := n.items.Put(tx, one); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

func (n *node) mustPut(list ...item) {
	n.t.Helper()
	if err := n.put(list...); err != nil {
		n.t.Fatal(err)
	}
}

// want waits until the store is idle, and checks its items.
func (n *node) want(want string) {
	n.t.Helper()
	synctest.Wait()
	var list []string
	for i := range n.items.All(n.Snapshot()) {
		list = append(list, i.Name+"="+i.Label)
	}
	if got := strings.Join(list, " "); got != want {
		n.t.Fatalf("%s has %q, want %q", n.sharing.node, got, want)
	}
}

func labeled(name, label string) item { return item{Name: name, Label: label} }

// TestShared checks that changes of one node arrive at another.
func TestShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		remote := newFakeRemote()
		a := openNode(t, "a", t.TempDir(), remote, JoinRefuse)
		a.mustPut(labeled("web", "1"))
		b := openNode(t, "b", t.TempDir(), remote, JoinRefuse)
		b.want("web=1")
		b.mustPut(labeled("web", "2"), labeled("dns", "1"))
		a.want("dns=1 web=2")
		if r := a.Revisions()[0]; r.From != "node b" || r.Doing != "create 1 item, change 1 item" {
			t.Errorf("a remembers %+v", r)
		}
		_, changed, err := a.Commit("rest", func(tx *Tx) error { return tx.Delete(web().id()) })
		if err != nil || len(changed) != 1 {
			t.Fatalf("got %v %v, want no error, 1 element in changed", changed, err)
		}
		b.want("dns=1")
		if _, _, err := b.Commit("kube", func(tx *Tx) error { return tx.Delete(dns().id()) }); !errors.Is(err, ErrOwner) {
			t.Errorf("another owner deletes: %v", err)
		}
		one, _ := a.Snapshot().Meta(dns().id())
		other, _ := b.Snapshot().Meta(dns().id())
		if one.Tag() != other.Tag() || !strings.HasPrefix(one.Tag(), "shared-") {
			t.Errorf("tags %q and %q", one.Tag(), other.Tag())
		}
		if got := remote.objects(); got != "item/dns=1" {
			t.Errorf("shared: %q", got)
		}
		// rules belong to the node, and change without the shared store
		remote.fail(errors.New("away"))
		if _, _, err := a.Commit("rest", func(tx *Tx) error { return a.rules.Put(tx, rule{Number: 1}) }); err != nil {
			t.Error(err)
		}
		if b.rules.Len(b.Snapshot()) != 0 {
			t.Error("b has the rule of a")
		}
	})
}

// TestSharedRace checks a change while another node writes between its edit and its write.
func TestSharedRace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		remote := newFakeRemote()
		a, b := openNode(t, "a", t.TempDir(), remote, JoinRefuse), openNode(t, "b", t.TempDir(), remote, JoinRefuse)
		a.mustPut(labeled("web", "1"))
		b.want("web=1")
		meta, _ := a.Snapshot().Meta(web().id())

		remote.before = func() { b.mustPut(labeled("web", "b")) }
		_, _, err := a.Commit("rest", func(tx *Tx) error {
			if err := tx.ExpectTag(web().id(), meta.Tag()); err != nil {
				return err
			}
			return a.items.Put(tx, labeled("web", "a"))
		})
		if !errors.Is(err, ErrVersion) {
			t.Errorf("a write of an outdated version: %v", err)
		}
		a.want("web=b")

		// the edit runs again, and reads the change of the other node
		remote.before = func() { b.mustPut(labeled("web", "b+")) }
		_, _, err = a.Commit("rest", func(tx *Tx) error {
			now, _ := a.items.Get(tx, "web")
			return a.items.Put(tx, labeled("web", now.Label+"a"))
		})
		if err != nil {
			t.Fatal(err)
		}
		a.want("web=b+a")
		b.want("web=b+a")

		// a user of etcdctl does not replace the head
		remote.before = func() {
			remote.set("item/web", `{"format":2,"owner":"rest","object":{"item":"web","label":"etcdctl"}}`)
		}
		if _, _, err := a.Commit("rest", func(tx *Tx) error { return tx.Expect(web().id(), 99) }); err == nil {
			t.Error("version 99 exists")
		}
		remote.before()
		remote.before = nil
		a.want("web=etcdctl")
	})
}

// TestSharedCounter checks that concurrent updates of a counter by three nodes are not lost.
func TestSharedCounter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		remote := newFakeRemote()
		var writers sync.WaitGroup
		var nodes []*node
		const each = 20
		for i := range 3 {
			n := openNode(t, fmt.Sprint("node", i), t.TempDir(), remote, JoinRefuse)
			nodes = append(nodes, n)
			writers.Go(func() {
				for range each {
					_, _, err := n.Commit("rest", func(tx *Tx) error {
						now, _ := n.items.Get(tx, "web")
						now.Name, now.Parts = "web", append(slices.Clone(now.Parts), "x")
						return n.items.Put(tx, now)
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
		synctest.Wait()
		for _, n := range nodes {
			if one, _ := n.items.Get(n.Snapshot(), "web"); len(one.Parts) != 3*each {
				t.Errorf("%s counts %d of %d", n.sharing.node, len(one.Parts), 3*each)
			}
		}
	})
}

// TestSharedAway checks that, while the shared store is unreachable, reads and starts succeed, and
// writes are refused with a reason. Changes that were missed arrive later.
func TestSharedAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		remote, dir := newFakeRemote(), t.TempDir()
		a, b := openNode(t, "a", dir, remote, JoinRefuse), openNode(t, "b", t.TempDir(), remote, JoinRefuse)
		a.mustPut(labeled("web", "1"), labeled("dns", "1"))
		a.stop()
		remote.fail(errors.New("connection refused"))
		a = openNode(t, "a", dir, remote, JoinRefuse)
		a.want("dns=1 web=1")
		time.Sleep(9 * time.Second)
		err := a.put(labeled("web", "2"))
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "etcd at fake cannot be used since") || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("a write without the shared store: %v", err)
		}
		if r, _ := a.Remote(); r.Ready || r.Err == nil || time.Since(r.Since) < 9*time.Second {
			t.Errorf("state %+v", r)
		}
		remote.fail(nil)
		time.Sleep(2 * time.Second)
		remote.refuse(fmt.Errorf("database space exceeded: %w", ErrRefused))
		if err := a.put(labeled("web", "2")); !errors.Is(err, ErrUnavailable) || !strings.HasPrefix(err.Error(), "etcd at fake refuses the change: database space exceeded") {
			t.Errorf("a write that the shared store refuses: %v", err)
		}
		remote.refuse(nil)
		b.mustPut(labeled("web", "3"))
		a.want("dns=1 web=3")
		if r, _ := a.Remote(); !r.Ready || r.Err != nil {
			t.Errorf("state %+v", r)
		}
		// changes that were missed, and then compacted
		remote.fail(errors.New("away"))
		time.Sleep(3 * time.Second)
		remote.set("item/dns", "")
		remote.compact()
		remote.fail(nil)
		time.Sleep(2 * time.Second)
		a.want("web=3")
		b.want("web=3")
	})
}

// TestSharedForeign checks that entries that are not valid objects are reported, and that the last
// valid object with the same path stays.
func TestSharedForeign(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		remote := newFakeRemote()
		a := openNode(t, "a", t.TempDir(), remote, JoinRefuse)
		a.mustPut(labeled("web", "1"), labeled("dns", "1"))
		remote.set("item/web", "garbage")
		remote.set("item/new", `{"format":3,"owner":"rest","object":{"item":"new"}}`)
		remote.set("item/other", `{"format":2,"owner":"rest","object":{"item":"else"}}`)
		remote.set("rule/1", `{}`)
		remote.set("strange", "x")
		a.want("dns=1 web=1")
		b := openNode(t, "b", t.TempDir(), remote, JoinRefuse)
		b.want("dns=1")
		r, _ := a.Remote()
		var got []string
		for _, p := range r.Problems {
			got = append(got, p.Path+": "+p.Reason)
		}
		want := []string{
			"item/new: its format is newer than this loxilb",
			`item/other: its object has the key "else"`,
			"item/web: its value is not an object of loxilb",
			"rule/1: objects of its kind are local to each node, and are not read from here",
			"strange: its kind is not known to this loxilb",
		}
		if !slices.Equal(got, want) {
			t.Errorf("problems %q", got)
		}
		if err := a.put(labeled("new", "1")); !errors.Is(err, ErrNewer) {
			t.Errorf("an object of a newer loxilb is overwritten: %v", err)
		}
		b.mustPut(labeled("web", "2"))
		a.want("dns=1 web=2")
		remote.set("head", `{"schema":9,"store":"x"}`)
		time.Sleep(2 * time.Second)
		if err := a.put(labeled("web", "3")); err == nil || !strings.Contains(err.Error(), "schema 9, and this one only knows schema 1: update this node") {
			t.Errorf("a newer schema: %v", err)
		}
	})
}

// TestSharedJoin checks a node that joins while both it and the shared store have objects.
func TestSharedJoin(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		join  Join
		local []item
		want  string // of a third node
		err   string
	}{
		"nothing here": {want: "dns=1 web=1"},
		"the same":     {local: []item{labeled("web", "1")}, want: "dns=1 web=1"},
		"differs": {
			local: []item{labeled("web", "2"), labeled("x", "1")}, want: "dns=1 web=1",
			err: "this node has objects that differ: item web, item x; start loxilb once with --store-join=store",
		},
		"differs, remote": {join: JoinRemote, local: []item{labeled("web", "2"), labeled("x", "1")}, want: "dns=1 web=1"},
		"differs, local":  {join: JoinLocal, local: []item{labeled("web", "2"), labeled("x", "1")}, want: "dns=1 web=2 x=1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				remote, dir := newFakeRemote(), t.TempDir()
				alone := openNode(t, "b", dir, nil, JoinRefuse)
				alone.mustPut(test.local...)
				alone.stop()
				a := openNode(t, "a", t.TempDir(), remote, JoinRefuse)
				a.mustPut(labeled("web", "1"), labeled("dns", "1"))
				b := openNode(t, "b", dir, remote, test.join)
				time.Sleep(2 * time.Second)
				openNode(t, "c", t.TempDir(), remote, JoinRefuse).want(test.want)
				if test.err == "" {
					b.want(test.want)
				} else {
					b.want("web=2 x=1")
					if err := b.put(labeled("y", "1")); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), test.err) {
						t.Errorf("got %v, want the error ErrUnavailable, test.err in the error", err)
					}
				}
			})
		})
	}
}

// TestSharedFirst checks that the first node copies its objects to the shared store, in parts, even
// after an interruption, and again after the shared store was emptied.
func TestSharedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		remote, dir := newFakeRemote(), t.TempDir()
		alone := openNode(t, "a", dir, nil, JoinRefuse)
		var list []item
		for i := range 250 {
			list = append(list, numbered(i, 1))
		}
		alone.mustPut(list...)
		alone.stop()
		var parts int
		remote.before = func() {
			remote.before = func() { parts++; remote.fail(errors.New("killed")) }
		}
		a := openNode(t, "a", dir, remote, JoinRefuse)
		synctest.Wait()
		a.stop()
		if n := len(remote.entries); n != 101 {
			t.Fatalf("%d entries before the kill", n)
		}
		remote.fail(nil)
		b := openNode(t, "b", t.TempDir(), remote, JoinRefuse)
		synctest.Wait()
		if err := b.put(labeled("web", "1")); err == nil || !strings.Contains(err.Error(), "node a is copying its objects there") {
			t.Errorf("a write meanwhile: %v", err)
		}
		a = openNode(t, "a", dir, remote, JoinRefuse)
		time.Sleep(2 * time.Second)
		for _, n := range []*node{a, b} {
			if got := n.items.Len(n.Snapshot()); got != 250 {
				t.Errorf("%s has %d items", n.sharing.node, got)
			}
		}
		remote.mu.Lock()
		var all []RemoteEntry
		for path := range remote.entries {
			all = append(all, RemoteEntry{Path: path})
		}
		remote.commit(all)
		remote.mu.Unlock()
		time.Sleep(3 * time.Second)
		for _, n := range []*node{a, b} {
			if got := n.items.Len(n.Snapshot()); got != 250 {
				t.Errorf("%s has %d items after the shared store was emptied", n.sharing.node, got)
			}
		}
		if n := strings.Count(remote.objects(), "item/"); n != 250 {
			t.Errorf("%d objects after the store was emptied", n)
		}
	})
}

// TestSharedLarge checks a change of more objects than fit into one write. At the node that makes
// it, it is one revision, which waits for confirmation and can be undone.
func TestSharedLarge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		remote := newFakeRemote()
		a, b := openNode(t, "a", t.TempDir(), remote, JoinRefuse), openNode(t, "b", t.TempDir(), remote, JoinRefuse)
		revision, changed, err := a.CommitBy(CommitOptions{Owner: "rest", Confirm: time.Now().Add(time.Minute)}, func(tx *Tx) error {
			for i := range 250 {
				if err := a.items.Put(tx, numbered(i, 1)); err != nil {
					return err
				}
			}
			return a.rules.Put(tx, rule{Number: 7})
		})
		if err != nil || len(changed) != 251 || revision != a.Snapshot().Revision() {
			t.Fatalf("got %v %v %v, want no error, 251 elements in changed, revision == a.Snapshot().Revision()",
				revision, len(changed), err)
		}
		synctest.Wait()
		if n := b.items.Len(b.Snapshot()); n != 250 || b.rules.Len(b.Snapshot()) != 0 {
			t.Errorf("b has %d items", n)
		}
		if w, ok := a.Waiting(); !ok || w.Number != revision {
			t.Errorf("waits: %+v %v", w, ok)
		}
		if _, _, err := a.Commit("rest", func(tx *Tx) error { _, err := tx.Undo(revision); return err }); err != nil {
			t.Fatal(err)
		}
		a.want("")
		b.want("")
		if _, ok := a.Waiting(); ok || a.rules.Len(a.Snapshot()) != 0 {
			t.Error("the change still waits for confirmation, or its rule exists")
		}
	})
}
