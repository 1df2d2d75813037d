package packet

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/test/packet/lab"
)

// modeScripts is a directory with a script for each picture of modes.md, named by the heading of
// the picture.
const modeScripts = "testdata/modes"

// TestDocs runs the examples of the documentation: blocks of packet-path.md that are fenced as
// `packets`, and the scripts of modes.
func TestDocs(t *testing.T) {
	t.Parallel()
	const page = "../../docs/packet-path.md"
	examples := readScripts(t, modeScripts)
	blocks := fenced(t, page, "packets")
	if len(blocks) == 0 {
		t.Fatalf("%s has no block of packets", page)
	}
	for _, b := range blocks {
		examples = append(examples, script{page, strings.Split(strings.TrimRight(b, "\n"), "\n")})
	}
	lanes := newWorkers(t, lab.Config{}, examples)
	for _, s := range examples {
		r, err := lanes.run(s)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		for _, f := range r.failures {
			t.Errorf("%s: in the example, %s", s.name, f)
		}
	}
}

// TestPictures checks that the picture of each mode shows the packets of its script, hop by hop,
// except for packets that bypass the load balancer.
func TestPictures(t *testing.T) {
	t.Parallel()
	pictures := picturesByHeading(t, "../../docs/modes.md")
	scripts := readScripts(t, modeScripts)
	if len(pictures) != len(scripts) {
		t.Errorf("modes.md has %d pictures, %s has %d scripts", len(pictures), modeScripts, len(scripts))
	}
	for _, s := range scripts {
		heading := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(s.name), ".txt"), "-", " ")
		picture, found := pictures[heading]
		if !found {
			t.Errorf("modes.md has no picture below the heading %q of %s", heading, s.name)
			continue
		}
		if diff := cmp.Diff(hops(strings.Join(s.lines, "\n"), "in ", "out "), hops(picture, "")); diff != "" {
			t.Errorf("the picture of %q has other packets than %s (-script, +picture):\n%s", heading, s.name, diff)
		}
	}
}

// picturesByHeading returns the first picture of packets below each heading of a page.
func picturesByHeading(t *testing.T, page string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	pictures := map[string]string{}
	for _, m := range regexp.MustCompile("(?ms)^## ([^\n]+)\n.*?^```\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[2], " > ") {
			pictures[m[1]] = m[2]
		}
	}
	return pictures
}

// hops returns the sources and destinations of packets in lines with the given prefixes.
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
