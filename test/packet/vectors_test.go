package packet

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/lb/report"
	"loxilb/tools/markdown"
)

// vectorsFile is generated from the scripts and leftOutFile by `make update`.
const (
	vectorsFile = "testdata/vectors"
	leftOutFile = "testdata/left-out"
	vectorCount = 200 // in the checklist
)

// otherTests returns the vectors that scripts cannot express, by their tests.
func otherTests() []string {
	return []string{
		"../../internal/kernel/datapath/complete_test.go", "../../internal/kernel/datapath/attach/decap_test.go", "../../internal/kernel/datapath/fragment_test.go",
		"../../internal/kernel/datapath/restart_test.go", "../../internal/kernel/datapath/select_test.go", "../../internal/kernel/datapath/snat_test.go",
		"../../internal/kernel/datapath/tables/adopt_test.go", "../../internal/kernel/datapath/verifier_test.go", "../../internal/lb/validate_test.go",
		"../../internal/control/compile/maglev_test.go",
		"../../test/differential/differential_test.go", "../../test/model/model_test.go", "../../test/net/services/counters_test.go",
		"vectors_test.go",
	}
}

const vectorsHead = "Cases that scripts and other tests check, by the first one that has them. A comment `# V43 ...`\n" +
	"above a step makes an entry; `make update` writes this file.\n\n"

// vector is an entry: its description in the first script, and the names of all scripts that have
// it.
type vector struct {
	what    string
	scripts []string
}

// TestVectors compares the list of vectors with the scripts.
func TestVectors(t *testing.T) {
	t.Parallel()
	vectors := map[int]vector{}
	files := scriptFiles(t, "testdata")
	slices.SortFunc(files, func(a, b string) int { // a script precedes its IPv6 counterpart, and gives the entry its words
		return strings.Compare(strings.TrimSuffix(a, ".txt"), strings.TrimSuffix(b, ".txt"))
	})
	for _, name := range append(files, otherTests()...) {
		s := readScript(t, name)
		for _, line := range s.lines {
			collect(vectors, strings.TrimSuffix(filepath.Base(name), ".txt"), line)
		}
	}
	var titles []string
	cases := map[string][]string{}
	for _, n := range slices.Sorted(maps.Keys(vectors)) {
		v := vectors[n]
		title := v.scripts[0]
		if cases[title] == nil {
			titles = append(titles, title)
		}
		cases[title] = append(cases[title], fmt.Sprintf("V%d %s", n, v.what))
	}
	want := vectorsHead
	for _, title := range titles {
		want += markdown.Item("*" + title + "*: " + strings.Join(cases[title], "; "))
	}
	want += leftOut(t, vectors)
	if updating() {
		if err := os.WriteFile(vectorsFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("%s differs from the scripts (- scripts, + file); run make update\n%s", vectorsFile, diff)
	}
}

const leftOutHead = "\nLeft out:\n\n"

// leftOut returns the section about vectors that have neither a script nor a test. Each has a line
// in leftOutFile.
func leftOut(t *testing.T, have map[int]vector) string {
	t.Helper()
	text, err := os.ReadFile(leftOutFile)
	if err != nil {
		t.Fatal(err)
	}
	keep, reasons, left := "", map[int]string{}, map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			keep += line
			continue
		}
		name, why, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(strings.TrimPrefix(name, "V"))
		if err != nil || why == "" {
			t.Errorf("%s: %q is no vector with a reason", leftOutFile, line)
		}
		reasons[n] = why
		if _, ok := have[n]; !ok {
			keep += line
			left[why] = append(left[why], name)
		} else if !updating() {
			t.Errorf("%s: V%d has a script; run make update", leftOutFile, n)
		}
	}
	for n := 1; n <= vectorCount; n++ {
		if _, ok := have[n]; !ok && reasons[n] == "" {
			t.Errorf("V%d has no script, no test and no reason in %s", n, leftOutFile)
		}
	}
	if updating() {
		if err := os.WriteFile(leftOutFile, []byte(keep), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rows := leftOutHead
	for _, why := range slices.Sorted(maps.Keys(left)) {
		rows += fmt.Sprintf("- %s: %s\n", why, strings.Join(left[why], ", "))
	}
	return rows
}

// collect records the vectors in a comment: `# V4 V5 description`.
func collect(vectors map[int]vector, script, line string) {
	m := regexp.MustCompile(`^(?:#|//)((?: V\d+)+) (.*)$`).FindStringSubmatch(line)
	if m == nil {
		return
	}
	for _, word := range strings.Fields(m[1]) {
		n, err := strconv.Atoi(word[1:])
		if err != nil {
			continue
		}
		v, ok := vectors[n]
		if !ok {
			v.what = m[2]
		}
		if !slices.Contains(v.scripts, script) {
			v.scripts = append(v.scripts, script)
		}
		vectors[n] = v
	}
}

// TestDropReasons checks that each drop reason occurs in a script.
//
// V196 every drop reason occurs
// P15 Every dropped packet is counted by its reason
func TestDropReasons(t *testing.T) {
	t.Parallel()
	unreachable := map[string]string{
		"connection-race":      "takes two CPUs",
		"ipsec-policy":         "takes policies of the kernel: TestIPsec",
		"lease-ended":          "takes an election: TestLeases",
		"other-network":        "takes two networks: TestLinks",
		"not-linear":           "takes a kernel without memory",
		"no-memory":            "takes a kernel without memory: TestNoMemory",
		"fragments-full":       "takes 1,024 datagrams: TestFragmentsOfOneSource",
		"snat-ports-exhausted": "takes 64,000 connections: TestSourcePorts",
	}
	scripts := ""
	for _, name := range scriptFiles(t, "testdata") {
		scripts += strings.Join(readScript(t, name).lines, "\n")
	}
	for _, reason := range report.DropReasons() {
		if _, ok := unreachable[reason.Name]; !ok && !strings.Contains(scripts, "reason="+reason.Name+"\n") {
			t.Errorf("no script drops a packet for %s", reason.Name)
		}
	}
}
