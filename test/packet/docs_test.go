package packet

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/test/packet/lab"
)

// TestDocs runs the examples of the documentation: blocks fenced as `packets`.
func TestDocs(t *testing.T) {
	t.Parallel()
	var examples []script
	for _, page := range []string{"../../docs/packet-path.md", "../../docs/modes.md"} {
		blocks := fenced(t, page, "packets")
		if len(blocks) == 0 {
			t.Fatalf("%s has no example", page)
		}
		for _, b := range blocks {
			examples = append(examples, script{page, strings.Split(strings.TrimRight(b, "\n"), "\n")})
		}
	}
	lanes := newLanes(t, lab.Config{}, examples)
	for _, s := range examples {
		r, err := lanes.run(s)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		for _, f := range r.failures {
			t.Errorf("%s: %s of the example", s.name, f)
		}
	}
}

// TestPictures checks that each picture of a mode shows the packets of the script below it, hop by
// hop, except for packets that bypass the load balancer.
func TestPictures(t *testing.T) {
	t.Parallel()
	const page = "../../docs/modes.md"
	scripts := fenced(t, page, "packets")
	var pictures []string
	for _, b := range fenced(t, page, "") {
		if strings.Contains(b, " > ") {
			pictures = append(pictures, b)
		}
	}
	if len(pictures) != 8 || len(scripts) != 8 {
		t.Fatalf("%d pictures, %d scripts of eight modes", len(pictures), len(scripts))
	}
	for i, s := range scripts {
		if diff := cmp.Diff(hops(s, "in ", "out "), hops(pictures[i], "")); diff != "" {
			t.Errorf("picture %d has other packets than the script below it (-script, +picture):\n%s", i+1, diff)
		}
	}
}

// hops returns the sources and destinations in lines with these prefixes.
func hops(text string, begin ...string) (hops []string) {
	hop := regexp.MustCompile(`[\da-f.:]+ > [\da-f.:]+`)
	for line := range strings.Lines(text) {
		if strings.Contains(line, "past loxilb") || !slices.ContainsFunc(begin, func(b string) bool { return strings.HasPrefix(line, b) }) {
			continue
		}
		hops = append(hops, hop.FindAllString(line, -1)...)
	}
	return hops
}

// fenced returns the blocks of a page that are fenced as a language.
func fenced(t *testing.T, page, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		if m[1] == language {
			blocks = append(blocks, m[2])
		}
	}
	return blocks
}
