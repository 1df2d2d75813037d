package compile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/lb"
)

// TestGoldens compiles each service of testdata/*.txt and compares with the lines below it. UPDATE=1 writes them
// anew.
func TestGoldens(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { golden(t, file) })
	}
}

// golden: lines from "> " on are services, what follows each is its table; "#" begins a comment.
func golden(t *testing.T, file string) {
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for line := range strings.Lines(string(want)) {
		if strings.HasPrefix(line, "#") {
			got.WriteString(line)
		}
		text, ok := strings.CutPrefix(line, "> ")
		if !ok {
			continue
		}
		s, err := lb.ParseService(strings.TrimSpace(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got.WriteString(line)
		got.WriteString(Service(s, nil, 1, nil).String())
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

// TestUnhealthy leaves endpoints without places that may not take connections.
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

// TestAllDown: while no endpoint is up nobody gets connections, or all who have a weight do.
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
		if diff := cmp.Diff([]uint32{2}, one.Slots); diff != "" || one.Endpoints[1].Takes != 0 || one.Endpoints[1].Weight != 1 {
			t.Errorf("%s, one up: slots: -want +got:\n%s", text, diff)
		}
	}
}
