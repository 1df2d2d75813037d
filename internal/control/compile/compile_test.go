package compile

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/lb"
)

// TestGoldens compiles each service of testdata/*.txt and compares with the lines below it.
// UPDATE=1 rewrites them.
func TestGoldens(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			golden(t, file, func(text string) string {
				s, err := lb.ParseService(text)
				if err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				return Service(s, nil, 1, nil).String()
			})
		})
	}
}

// golden checks one file: lines that begin with "> " are questions, each followed by its answer;
// "#" begins a comment. UPDATE=1 rewrites it.
func golden(t *testing.T, file string, answer func(question string) string) {
	t.Helper()
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for line := range strings.Lines(string(want)) {
		if strings.HasPrefix(line, "#") {
			got.WriteString(line)
		}
		if text, ok := strings.CutPrefix(line, "> "); ok {
			got.WriteString(line)
			got.WriteString(answer(strings.TrimSpace(text)))
		}
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestUnhealthy checks that endpoints that are not eligible get no slots.
func TestUnhealthy(t *testing.T) {
	s, err := lb.ParseService("10.0.0.1:80/tcp endpoints=10.0.1.1:80,10.0.1.2:80,10.0.1.3:80")
	if err != nil {
		t.Fatal(err)
	}
	got := Service(s, func(e lb.Endpoint) bool { return e.Addr != s.Endpoints[1].Addr }, 1, nil)
	if diff := cmp.Diff([]uint32{0, 2}, got.Slots); diff != "" {
		t.Errorf("slots: -want +got:\n%s", diff)
	}
}

// TestAllDown checks that with no endpoint up either none gets connections, or all endpoints with a
// weight do.
func TestAllDown(t *testing.T) {
	const line = "10.0.0.1:80/tcp endpoints=10.0.1.1:80:0,10.0.1.2:80,10.0.1.3:80"
	down := func(lb.Endpoint) bool { return false }
	for text, want := range map[string][]uint32{line: {}, line + " all-down=panic": {1, 2}} {
		s, err := lb.ParseService(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, Service(s, down, 1, nil).Slots); diff != "" {
			t.Errorf("%s: slots: -want +got:\n%s", text, diff)
		}
		one := Service(s, func(e lb.Endpoint) bool { return e.Addr == s.Endpoints[2].Addr }, 1, nil)
		if diff := cmp.Diff([]uint32{2}, one.Slots); diff != "" || one.Endpoints[1].CurrentWeight != 0 || one.Endpoints[1].Weight != 1 {
			t.Errorf("%s, one up: slots: -want +got:\n%s", text, diff)
		}
	}
}

// TestDownMovesItsShareAlone checks that when an endpoint goes down, other endpoints keep their
// slots, except for a few, and that its return restores the table.
func TestDownMovesItsShareAlone(t *testing.T) {
	s, err := lb.ParseService("10.0.0.1:80/tcp select=hash endpoints=10.0.1.1:80,10.0.1.2:80,10.0.1.3:80,10.0.1.4:80")
	if err != nil {
		t.Fatal(err)
	}
	before := Service(s, nil, 1, nil).Slots
	after := Service(s, func(e lb.Endpoint) bool { return e.Addr != s.Endpoints[1].Addr }, 1, nil).Slots
	if len(before) != len(after) {
		t.Fatalf("a table of %d slots has %d now", len(before), len(after))
	}
	moved := 0
	for i := range before {
		switch {
		case after[i] == 1:
			t.Fatalf("slot %d belongs to the endpoint that is down", i)
		case before[i] != 1 && before[i] != after[i]:
			moved++
		}
	}
	if moved > len(before)/50 {
		t.Errorf("%d of %d slots of other endpoints moved", moved, len(before))
	}
	if diff := cmp.Diff(before, Service(s, func(lb.Endpoint) bool { return true }, 1, nil).Slots); diff != "" {
		t.Errorf("back again: %s", diff)
	}
}

// TestAuto checks that in mode auto, endpoints of this node see the client's address. Others, also
// without a path, see an address of this node. The packet path's mode is default.
func TestAuto(t *testing.T) {
	s, err := lb.ParseService("10.0.0.1:80/tcp mode=auto endpoints=10.0.1.1:80,10.0.1.2:80,10.0.1.3:80")
	if err != nil {
		t.Fatal(err)
	}
	ours := netip.MustParseAddr("10.0.1.254")
	paths := map[netip.Addr]Path{s.Endpoints[0].Addr: {Source: ours, SourceBits: 24, Returns: true}, s.Endpoints[1].Addr: {Source: ours, SourceBits: 24}}
	got := Service(s, nil, 1, func(a netip.Addr) Path { return paths[a] })
	type row struct {
		SNAT   bool
		Source netip.Addr
	}
	var rows []row
	for _, e := range got.Endpoints {
		rows = append(rows, row{e.SNAT, e.Source.Netip()})
	}
	want := []row{{false, ours}, {true, ours}, {true, netip.IPv6Unspecified()}}
	if diff := cmp.Diff(want, rows, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || got.Mode != uint8(lb.ModeDefault) {
		t.Errorf("mode %d, rows: -want +got:\n%s", got.Mode, diff)
	}
	s.Mode = lb.ModeDefault
	if Service(s, nil, 1, func(a netip.Addr) Path { return paths[a] }).Endpoints[1].SNAT {
		t.Error("mode default translates the source")
	}
}
