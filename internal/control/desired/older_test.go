package desired_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// This file reads state files like the loxilb of commit 9c1cf13, which treated every line with an
// unknown member as damage. Files without newer features must stay readable for it.

type olderHeader struct {
	File     string `json:"file"`
	Version  int    `json:"version"`
	Revision uint64 `json:"revision"`
	Services int    `json:"services,omitempty"`
}

type olderService struct {
	Service        string   `json:"service"`
	Owner          string   `json:"owner,omitempty"`
	Name           string   `json:"name,omitempty"`
	Mode           string   `json:"mode"`
	Select         string   `json:"select"`
	Endpoints      []string `json:"endpoints"`
	Refuse         string   `json:"refuse,omitempty"`
	Tunnel         string   `json:"tunnel,omitempty"`
	MSS            uint16   `json:"mss,omitempty"`
	Idle           int64    `json:"idle,omitempty"`
	Sources        []string `json:"sources,omitempty"`
	SNAT           []string `json:"snat,omitempty"`
	Secondary      []string `json:"secondary,omitempty"`
	Egress         bool     `json:"egress,omitempty"`
	PersistTimeout int64    `json:"persistTimeout,omitempty"`
	PersistPrefix  uint8    `json:"persistPrefix,omitempty"`
	Managed        bool     `json:"managed,omitempty"`
}

type olderCommit struct {
	Revision uint64         `json:"revision"`
	Owner    string         `json:"owner"`
	Put      []olderService `json:"put,omitempty"`
	Delete   []string       `json:"delete,omitempty"`
}

// olderBody returns the body of a line with its checksum.
func olderBody(t *testing.T, line string) []byte {
	t.Helper()
	const start, end = len(`{"crc":"01234567","body":`), len("}\n")
	if len(line) < start+end || !strings.HasPrefix(line, `{"crc":"`) || !strings.HasSuffix(line, "}\n") {
		t.Fatalf("no line of a state file: %s", line)
	}
	body := []byte(line[start : len(line)-end])
	if want := fmt.Sprintf(`{"crc":"%08x","body":`, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))); line[:start] != want {
		t.Fatalf("the checksum of %s is not %s", line, want)
	}
	return body
}

func olderDecode(t *testing.T, line string, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(olderBody(t, line)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Errorf("%v: %s", err, line)
	}
}

// olderFile reads a file of a kind: its header, which may have unknown members, and its other
// lines.
func olderFile(t *testing.T, dir, name, kind string) (h olderHeader, lines []string) {
	t.Helper()
	lines = strings.SplitAfter(readFile(t, dir, name), "\n")
	if err := json.Unmarshal(olderBody(t, lines[0]), &h); err != nil {
		t.Fatal(err)
	}
	if h.File != kind || h.Version < 1 || h.Version > 2 {
		t.Fatalf("%s is %q of version %d", name, h.File, h.Version)
	}
	return h, lines[1 : len(lines)-1]
}

// olderLoad returns what the older loxilb would read from a directory: services by their keys, each
// preceded by its owner.
func olderLoad(t *testing.T, dir string) (revision uint64, services map[string]string) {
	t.Helper()
	services = map[string]string{}
	add := func(owner string, r olderService) {
		r.Owner = ""
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		services[r.Service] = owner + " " + string(text)
	}
	for _, name := range filesOf(t, dir) {
		if name != snapshotFile {
			continue
		}
		h, lines := olderFile(t, dir, name, "snapshot")
		if h.Services != len(lines) {
			t.Errorf("the header counts %d services, and there are %d", h.Services, len(lines))
		}
		for _, line := range lines {
			var r olderService
			olderDecode(t, line, &r)
			add(r.Owner, r)
		}
		revision = h.Revision
	}
	for _, name := range filesOf(t, dir) {
		if name == snapshotFile {
			continue
		}
		h, lines := olderFile(t, dir, name, "journal")
		if h.Revision != revision || name != fmt.Sprintf("journal-%020d.jsonl", h.Revision) {
			t.Errorf("%s follows %d, and %d is reached", name, h.Revision, revision)
		}
		for _, line := range lines {
			var c olderCommit
			olderDecode(t, line, &c)
			if revision++; c.Revision != revision {
				t.Errorf("revision %d where %d should be", c.Revision, revision)
			}
			for _, key := range c.Delete {
				delete(services, key)
			}
			for _, r := range c.Put {
				add(c.Owner, r)
			}
		}
	}
	return revision, services
}

// everyField has services with all fields that existed when records began to have formats.
const everyField = `10.0.0.1:80/tcp mode=default select=rr endpoints=192.168.1.10:8080,192.168.1.11:8080:5 idle=300s managed=true name="a <b> & \"c\" ü"
10.0.0.1:8080-8090/tcp/mark=7 mode=default select=rr endpoints=192.168.1.10:9080-9090 sources=10.0.0.0/8,192.168.0.0/16
[2001:db8::1]:53/udp mode=default select=hash endpoints=[2001:db8::2]:53 name="d n s"
10.0.0.2:80/tcp mode=dsr select=persist endpoints=192.168.1.10:80 secips=10.0.0.3,10.0.0.4 persist-timeout=60s persist-prefix=24 refuse=drop tunnel=ipip mss=1400
10.0.0.5:80/tcp mode=fullnat select=rr endpoints=192.168.1.10:80 snat=10.0.0.6,10.0.0.7
10.0.0.8:443/tcp mode=onearm select=rr endpoints=192.168.1.10:443 egress=true`

// TestDowngrade checks that the loxilb of commit 9c1cf13 reads what this one writes.
func TestDowngrade(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s := open(t, dir)
	want := map[string]string{}
	for i, line := range strings.Split(everyField, "\n") {
		one := service(t, line)
		owner := fmt.Sprint("owner-", i%2)
		mustCommit(t, s, owner, put(s, one, numbered(i, 1)))
		_, object, err := lb.NewSchema().MarshalRecord(one)
		if err != nil {
			t.Fatal(err)
		}
		want[one.Key.String()] = owner + " " + string(object)
		mustCommit(t, s, owner, func(tx *store.Tx) error { return s.Services.Delete(tx, numbered(i, 1).Key) })
	}
	check := func(when string) {
		t.Helper()
		revision, got := olderLoad(t, dir)
		if revision != s.Snapshot().Revision() || len(got) != len(want) {
			t.Errorf("%s: revision %d and %d services, want %d and %d", when, revision, len(got), s.Snapshot().Revision(), len(want))
		}
		for key, record := range want {
			if got[key] != record {
				t.Errorf("%s: %s is\n%s, want\n%s", when, key, got[key], record)
			}
		}
	}
	check("in the journal")
	closeState(t, s)
	s = open(t, dir)
	check("in a snapshot")
	mustCommit(t, s, "later", put(s, numbered(1, 1)))
	mustCommit(t, s, "later", func(tx *store.Tx) error { return s.Services.Delete(tx, numbered(1, 1).Key) })
	check("in both")
}

// TestUnknownService checks that a service with newer fields is kept unchanged, and not served
// until it is put again.
func TestUnknownService(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	body := `{"service":"10.0.0.1:80/tcp","owner":"rest","mode":"default","select":"rr","endpoints":["1.1.1.1:1"],"novelty":1}`
	var file strings.Builder
	for _, body := range []string{`{"file":"snapshot","version":2,"revision":7,"services":1}`, body} {
		fmt.Fprintf(&file, `{"crc":"%08x","body":%s}`+"\n", crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli)), body)
	}
	writeFile(t, dir, snapshotFile, file.String())
	s := open(t, dir)
	wantDump(t, s, "revision 7, 0 services, 0 endpoints\n")
	mustCommit(t, s, "other", put(s, numbered(1, 1)))
	closeState(t, s)
	if !strings.Contains(readFile(t, dir, snapshotFile), body) {
		t.Error("the record has changed")
	}
	s = open(t, dir)
	if !strings.Contains(readFile(t, dir, snapshotFile), body) {
		t.Error("the record changes when it is written again")
	}
	if _, _, err := s.Commit("other", put(s, service(t, "10.0.0.1:80/tcp endpoints=1.1.1.2:1"))); err == nil {
		t.Error("another owner may replace it")
	}
	mustCommit(t, s, "rest", put(s, service(t, "10.0.0.1:80/tcp endpoints=1.1.1.2:1")))
	want := dump(s)
	closeState(t, s)
	s = open(t, dir)
	wantDump(t, s, want)
	if n := s.Snapshot().UnknownLen(); n != 0 {
		t.Errorf("%d records are kept", n)
	}
}
