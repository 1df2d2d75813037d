package kernels

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev"
	"loxilb/test/dptest"
)

const document = "../../docs/kernels.md"

// TestFeatures checks that the running kernel has the features that docs/kernels.md lists for its
// version. Only Debian's 6.1, in a guest, must also lack the others: distributions add newer
// features to old kernels.
func TestFeatures(t *testing.T) {
	t.Parallel()
	probes := map[string]func(*testing.T) bool{
		"bpf_cast_to_kern_ctx": hasKfunc,
		"netdev":               reportsXDP,
		"tcx":                  func(*testing.T) bool { return dptest.HasTCX() },
		"BPF_FIB_LOOKUP_SRC":   hasSourceFlag,
	}
	version, oldest := kernelSeries(t), [2]int{6, 1}
	rows := regexp.MustCompile("(?m)^\\| (\\d+)\\.(\\d+) \\| `([^`]+)`[^|]*\\| (yes|no) \\|").FindAllStringSubmatch(read(t, document), -1)
	for _, row := range rows {
		probe := probes[row[3]]
		if probe == nil {
			t.Errorf("docs/kernels.md has the feature %s, but no probe tests it", row[3])
			continue
		}
		delete(probes, row[3])
		since := [2]int{number(t, row[1]), number(t, row[2])}
		has, should := probe(t), slices.Compare(version[:], since[:]) >= 0 || inGuest() && version == oldest && row[4] == "yes"
		if has != should && (should || inGuest()) {
			t.Errorf("Linux %v has %s: %v, want %v as in docs/kernels.md", version, row[3], has, should)
		}
	}
	if len(probes) != 0 {
		t.Errorf("docs/kernels.md does not have %v", probes)
	}
}

// TestChecks checks that docs/kernels.md lists the checks of a guest, by the names that it reports.
func TestChecks(t *testing.T) {
	t.Parallel()
	var done, listed []string
	for _, m := range regexp.MustCompile(`(?m)^(?:\[.*\|\| )?check [12] "([^"]+)"`).FindAllStringSubmatch(read(t, "init"), -1) {
		done = append(done, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]+) \| (?:yes|no) \|$`).FindAllStringSubmatch(read(t, document), -1) {
		listed = append(listed, m[1])
	}
	if diff := cmp.Diff(done, listed); diff != "" {
		t.Errorf("- checks of init, + those in docs/kernels.md:\n%s", diff)
	}
}

// inGuest reports whether this is a guest of make test-kernels: these lack a file that other
// machines have.
func inGuest() bool {
	_, err := os.Stat("init")
	return errors.Is(err, fs.ErrNotExist)
}

func hasKfunc(t *testing.T) bool {
	t.Helper()
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var f *btf.Func
	return types.TypeByName("bpf_cast_to_kern_ctx", &f) == nil
}

// hasSourceFlag reports whether the kernel's type information has the flag.
func hasSourceFlag(t *testing.T) bool {
	t.Helper()
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	for enum := range types.All() {
		if e, ok := enum.(*btf.Enum); ok && slices.ContainsFunc(e.Values, func(v btf.EnumValue) bool { return v.Name == "BPF_FIB_LOOKUP_SRC" }) {
			return true
		}
	}
	return false
}

func reportsXDP(t *testing.T) bool {
	t.Helper()
	n, err := netdev.Open(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	features, err := n.XDPFeatures()
	if err != nil {
		t.Fatal(err)
	}
	return features != nil
}

// kernelSeries returns the first two numbers of the running kernel's version.
func kernelSeries(t *testing.T) [2]int {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`^(\d+)\.(\d+)`).FindStringSubmatch(unix.ByteSliceToString(name.Release[:]))
	if m == nil {
		t.Fatalf("the kernel is %q", name.Release)
	}
	return [2]int{number(t, m[1]), number(t, m[2])}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
