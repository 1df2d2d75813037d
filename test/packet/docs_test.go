package packet

import (
	"os"
	"strings"
	"testing"

	"loxilb/test/packet/lab"
)

// TestDocs runs the examples of the documentation: blocks fenced as `packets`.
func TestDocs(t *testing.T) {
	t.Parallel()
	const page = "../../docs/packet-path.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```packets\n")[1:]
	if len(blocks) == 0 {
		t.Fatalf("%s has no example", page)
	}
	lanes := newLanes(t, lab.Config{})
	for _, b := range blocks {
		b, _, _ = strings.Cut(b, "```")
		r, err := lanes.run(script{page, strings.Split(strings.TrimRight(b, "\n"), "\n")})
		if err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		for _, f := range r.failures {
			t.Errorf("%s: %s of the example", page, f)
		}
	}
}
