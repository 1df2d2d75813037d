package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// openKinds opens a store that knows items, and rules up to a format; 0: no rules.
func openKinds(t *testing.T, dir string, format int) (*Store, string) {
	t.Helper()
	tables := []AnyTable{NewTable(itemKind())}
	if format > 0 {
		tables = append(tables, NewTable(ruleKind(format)))
	}
	var logged bytes.Buffer
	s, err := Open(dir, slog.New(slog.NewTextHandler(&logged, nil)), tables...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, logged.String()
}

// TestSecondKind checks all features of a store with a second kind: index, check, owner, version,
// watch and restart.
func TestSecondKind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _ := openKinds(t, dir, 2)
	ten, two := rule{Number: 10, Item: "web", Note: "later"}, rule{Number: 2, Item: "dns"}
	mustCommit(t, s, "rest", put(web(), dns()))
	revision, changed, err := s.Commit("rest", func(tx *Tx) error {
		return errors.Join(putRules(ten, two)(tx), put(web2())(tx))
	})
	if err != nil || revision != 2 || !slices.Equal(changed, []ID{web().id(), ten.id(), two.id()}) {
		t.Fatalf("got %d, %v, %v, want no error, revision == 2, changed == []ID{web().id(), ten.id(), two.id()}",
			revision, changed, err)
	}
	check := func() {
		t.Helper()
		at := s.Snapshot()
		list := func(seq func(func(rule) bool)) (numbers []int) {
			for r := range seq {
				numbers = append(numbers, r.Number)
			}
			return numbers
		}
		all, anys, webs := list(rules(at).All(at)), list(rules(at).Find(at, "item", "any")), list(rules(at).Find(at, "item", "web"))
		if got := fmt.Sprint(all, anys, webs); got != "[2 10] [2 10] [10]" {
			t.Errorf("found %s", got)
		}
		if r, ok := rules(at).Get(at, "10"); !ok || r != ten {
			t.Errorf("rule 10 is %+v, %v", r, ok)
		}
		if _, ok := rules(at).Get(at, "010"); ok {
			t.Error("an invalid key finds a rule")
		}
		if meta, ok := rules(at).Meta(at, "2"); !ok || meta != (Meta{Owner: "rest", Version: 2}) {
			t.Errorf("rule 2: %+v, %v", meta, ok)
		}
		if n := rules(at).Len(at); n != 2 {
			t.Errorf("%d rules", n)
		}
	}
	check()
	for range 2 { // first from the journal, then from a snapshot
		closeStore(t, s)
		s, _ = openKinds(t, dir, 2)
		check()
	}
	for name, c := range map[string]struct {
		owner string
		edit  func(*Tx) error
		is    error
		want  string
	}{
		"check":   {"rest", deletes(web().id()), nil, "item web has rule 10"},
		"owner":   {"kube", putRules(rule{Number: 2, Item: "x"}), ErrOwner, `rule 2 belongs to another owner, "rest"`},
		"version": {"rest", func(tx *Tx) error { return tx.Expect(two.id(), 1) }, ErrVersion, "rule 2 has changed: it has version 2, and version 1 was expected"},
		"key":     {"rest", deletes(ID{"rule", "02"}), ErrNotFound, "rule 02 does not exist"},
	} {
		if _, _, err := s.Commit(c.owner, c.edit); err == nil || err.Error() != c.want || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	moved := s.Changed()
	two.Item = "web"
	mustCommit(t, s, "rest", func(tx *Tx) error {
		if err := tx.Expect(two.id(), 2); err != nil {
			return err
		}
		if _, ok := rules(tx.base).Get(tx, "3"); ok {
			t.Error("rule 3 exists")
		}
		return putRules(two)(tx)
	})
	<-moved
	if at, ids, ok := s.Since(2); !ok || !slices.Equal(ids, []ID{two.id()}) || at.Revision() != 3 {
		t.Errorf("since 2: %v %v", ids, ok)
	}
}

// TestUnknownIsKept checks that a build keeps unknown records unchanged through all its commits,
// and that a build that knows them then reads them with their owners and versions.
//
// P7 An older loxilb damages nothing that a newer one has stored
func TestUnknownIsKept(t *testing.T) {
	t.Parallel()
	for _, saved := range []bool{false, true} {
		dir := t.TempDir()
		s, _ := openKinds(t, dir, 2)
		mustCommit(t, s, "rest", put(web()))
		mustCommit(t, s, "kube", putRules(rule{Number: 1, Item: "web"}, rule{Number: 2, Item: "web", Note: "<new>"}))
		mustCommit(t, s, "rest", putRules(rule{Number: 3, Item: "dns", Note: "new"}))
		want := recordsOf(t, s.Snapshot())
		closeStore(t, s)
		if saved {
			s, _ = openKinds(t, dir, 2)
			closeStore(t, s)
		}

		s, logged := openKinds(t, dir, 1)
		if n := strings.Count(logged, "level=WARN"); n != 2 || !strings.Contains(logged, "key=2 format=2") || !strings.Contains(logged, "newer than this loxilb") {
			t.Errorf("logged %s", logged)
		}
		if got := recordsOf(t, s.Snapshot()); got != want {
			t.Errorf("with format 1 known: %s, want %s", got, want)
		}
		var unknown []string
		for u := range s.Snapshot().Unknown() {
			unknown = append(unknown, fmt.Sprint(u.ID, " {", u.Owner, " ", u.Version, "} ", u.Format, " ", string(u.Object)))
		}
		if got := strings.Join(unknown,
			"\n"); got != "rule 2 {kube 2} 2 {\"number\":2,\"for\":\"web\",\"note\":\"\\u003cnew\\u003e\"}\nrule 3 {rest 3} 2 {\"number\":3,"+
			"\"for\":\"dns\",\"note\":\"new\"}" {
			t.Errorf("unknown are %s", got)
		}
		if _, ok := rules(s.Snapshot()).Get(s.Snapshot(), "2"); ok || rules(s.Snapshot()).Len(s.Snapshot()) != 1 {
			t.Error("an object of a newer build is served")
		}
		closeStore(t, s)

		s, logged = openKinds(t, dir, 0)
		if n := strings.Count(logged, "level=WARN"); n != 3 || !strings.Contains(logged, "its kind is not known") {
			t.Errorf("logged %s", logged)
		}
		mustCommit(t, s, "rest", put(dns()))
		mustCommit(t, s, "rest", deletes(dns().id()))
		closeStore(t, s)
		s, _ = openKinds(t, dir, 0)
		closeStore(t, s)

		s, logged = openKinds(t, dir, 2)
		if got := recordsOf(t, s.Snapshot()); got != strings.Replace(want, "revision 3", "revision 5", 1) || logged != "" {
			t.Errorf("known again: %s, want %s, logged %s", got, want, logged)
		}
		closeStore(t, s)
	}
}

// TestUnknownIsReplaced checks that only its owner can replace or delete an unknown record.
func TestUnknownIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _ := openKinds(t, dir, 2)
	for i := range 4 {
		mustCommit(t, s, "rest", putRules(rule{Number: i, Item: "web", Note: "new"}))
	}
	closeStore(t, s)
	s, _ = openKinds(t, dir, 1)
	if _, _, err := s.Commit("kube", putRules(rule{Number: 0})); !errors.Is(err, ErrOwner) {
		t.Errorf("put by another: %v", err)
	}
	if _, _, err := s.Commit("kube", deletes(ID{"rule", "1"})); !errors.Is(err, ErrOwner) {
		t.Errorf("deleted by another: %v", err)
	}
	if _, _, err := s.Commit("rest", func(tx *Tx) error { return tx.Expect(ID{"rule", "1"}, 1) }); !errors.Is(err, ErrVersion) {
		t.Errorf("a commit that expects another version: %v", err)
	}
	if _, changed, err := s.Commit("rest", putRules(rule{Number: 0, Item: "dns"})); err != nil || !slices.Equal(changed, []ID{{"rule", "0"}}) {
		t.Errorf("replaced: %v, %v", changed, err)
	}
	if _, changed, err := s.Commit("rest", deletes(ID{"rule", "1"})); err != nil || !slices.Equal(changed, []ID{{"rule", "1"}}) {
		t.Errorf("deleted: %v, %v", changed, err)
	}
	closeStore(t, s)
	s, _ = openKinds(t, dir, 0) // knows none of the remaining objects
	if _, _, err := s.Commit("rest", deletes(ID{"rule", "2"})); err != nil {
		t.Error(err)
	}
	if n := s.Snapshot().UnknownLen(); n != 2 {
		t.Errorf("%d are kept", n)
	}
	closeStore(t, s)
	s, _ = openKinds(t, dir, 2)
	const want = `revision 7
{"kind":"rule","format":1,"key":"0","owner":"rest","version":5,"object":{"number":0,"for":"dns"}}
{"kind":"rule","format":2,"key":"3","owner":"rest","version":4,"object":{"number":3,"for":"web","note":"new"}}
`
	if got := recordsOf(t, s.Snapshot()); got != want {
		t.Errorf("the records are\n%swant\n%s", got, want)
	}
}

// TestUnknownIsRestored checks that a rollback restores an unknown record that was deleted, also
// after a restart.
func TestUnknownIsRestored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _ := openKinds(t, dir, 2)
	mustCommit(t, s, "rest", putRules(rule{Number: 1, Item: "web", Note: "new"}))
	closeStore(t, s)
	s, _ = openKinds(t, dir, 1)
	want := content(s.Snapshot())
	mustCommit(t, s, "rest", deletes(ID{"rule", "1"}))
	mustCommit(t, s, "rest", rollBackTo(1))
	for range 2 {
		if got := content(s.Snapshot()); got != want {
			t.Errorf("after the rollback, the state is %q, want %q", got, want)
		}
		closeStore(t, s)
		s, _ = openKinds(t, dir, 1)
	}
}

// TestRefusedRecordIsKept checks that a well-formed record that Kind.Decode refuses is kept, and
// that other records are served, in files of versions 2 and 3.
func TestRefusedRecordIsKept(t *testing.T) {
	t.Parallel()
	for _, file := range []struct{ name, content string }{
		{snapshotName, lines(t,
			`{"file":"snapshot","version":2,"revision":3,"services":3,"versions":[1,2,3]}`,
			`{"item":"a","owner":"rest","label":"x"}`,
			`{"item":"b","owner":"kube","novelty":{"owner":"<x>"}, "parts":[]}`,
			`{"owner":"kube","item":"c","novelty":1}`)},
		{journalName(0), lines(t,
			`{"file":"journal","version":2,"revision":0}`,
			`{"revision":1,"owner":"rest","put":[{"item":"a","label":"x"},{"item":"b"}]}`,
			`{"revision":2,"owner":"kube","put":[{"item":"b","novelty":{"owner":"<x>"}, "parts":[]}]}`,
			`{"revision":3,"owner":"kube","put":[{"item":"c","novelty":1}]}`)},
		{snapshotName, lines(t,
			`{"file":"snapshot","version":3,"revision":3,"objects":3}`,
			`{"kind":"item","format":2,"key":"a","owner":"rest","version":1,"object":{"item":"a","label":"x"}}`,
			`{"kind":"item","format":2,"key":"b","owner":"kube","version":2,"object":{"item":"b","novelty":{"owner":"<x>"}, "parts":[]}}`,
			`{"kind":"item","format":2,"key":"c","owner":"kube","version":3,"object":{"item":"c","novelty":1}}`)},
	} {
		dir := t.TempDir()
		writeFile(t, dir, file.name, file.content)
		const want = "revision 3, 1 items, 0 parts\nrest 1: a \"x\" []\n" +
			"kube 2: item b format 2 {\"item\":\"b\",\"novelty\":{\"owner\":\"<x>\"}, \"parts\":[]}: json: unknown field \"novelty\"\n" +
			"kube 3: item c format 2 {\"item\":\"c\",\"novelty\":1}: json: unknown field \"novelty\"\n"
		for range 3 {
			s := openStore(t, dir)
			wantDump(t, s.Snapshot(), want)
			closeStore(t, s)
		}
		if content := readFile(t, dir, snapshotName); !strings.Contains(content, `"version":2,`) {
			t.Errorf("not in the lowest version: %s", content)
		}
		if aside := asideFiles(t, dir); len(aside) > 0 {
			t.Errorf("%v set aside", aside)
		}
	}
}

// lines returns the lines of a file with these bodies.
func lines(t *testing.T, bodies ...string) string {
	t.Helper()
	var b []byte
	for _, body := range bodies {
		b = appendLine(b, func(b []byte) []byte { return append(b, body...) })
	}
	return string(b)
}

// TestLowestVersion checks that files have version 3 only while version 2 cannot express their
// content.
func TestLowestVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _ := openKinds(t, dir, 2)
	version := func() string {
		t.Helper()
		closeStore(t, s)
		s, _ = openKinds(t, dir, 2)
		var versions []string
		for _, name := range files(t, dir) {
			h, err := decodeHeader([]byte(strings.SplitAfter(readFile(t, dir, name), "\n")[0]))
			if err != nil {
				t.Fatal(err)
			}
			versions = append(versions, fmt.Sprint(h.File, " ", h.Version))
		}
		return strings.Join(versions, ", ")
	}
	mustCommit(t, s, "rest", put(web()))
	if got := version(); got != "journal 2, snapshot 2" {
		t.Errorf("with an item: %s", got)
	}
	mustCommit(t, s, "rest", putRules(rule{Number: 1}))
	if got := version(); got != "journal 3, snapshot 3" {
		t.Errorf("with a rule: %s", got)
	}
	mustCommit(t, s, "rest", deletes(ID{"rule", "1"}))
	if got := version(); got != "journal 2, snapshot 2" {
		t.Errorf("without it: %s", got)
	}
}

func FuzzFiles(f *testing.F) {
	for _, body := range []string{
		`{"file":"snapshot","version":2,"revision":3,"services":1,"versions":[1]}`, `{"item":"a","owner":"rest"}`,
		`{"revision":1,"owner":"rest","put":[{"item":"a"}],"delete":["b"]}`,
		`{"revision":1,"owner":"rest","put":[{"kind":"rule","format":1,"key":"1","object":{"number":1}}],"delete":[{"kind":"rule","key":"2"}]}`,
		`{"kind":"rule","format":9,"key":"1","owner":"rest","version":1,"object":{}}`,
	} {
		f.Add([]byte(body), 2)
		f.Add([]byte(body), 3)
	}
	f.Fuzz(func(t *testing.T, body []byte, version int) {
		empty, err := emptySnapshot([]AnyTable{NewTable(itemKind()), NewTable(ruleKind(1))})
		if err != nil {
			t.Fatal(err)
		}
		l := &loader{tx: newTx(empty, "")}
		// with a correct checksum, so the fuzzer gets past it
		line := appendLine(nil, func(b []byte) []byte { return append(b, body...) })
		_, _ = decodeHeader(line)
		_ = l.replay(line, version, 1)
		if r, err := empty.decodeObject(line, version); err == nil && l.put(&r) == nil {
			l.head = l.buildSnapshot()
			for p := range l.head.all() { // all that was read can be written again
				if _, err := l.head.recordOf(p); err != nil {
					t.Error(err)
				}
			}
		}
	})
}
