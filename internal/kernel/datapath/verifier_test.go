package datapath

import (
	"bufio"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/bpf"
)

var updateBudget = flag.Bool("update-budget", false, "rewrite test/verifier/budget.txt")

// budgetFile has the cost of loading each program: how many instructions the verifier of one series
// of kernels processes. Its limit is 1,000,000.
const budgetFile = "../../../test/verifier/budget.txt"

// verifierHalf is half of what the verifier of each kernel allows.
const verifierHalf = 500_000

// TestVerifierBudget fails when a program costs over 5 % more than the file says. Kernels differ in
// how many of a program's paths they find equivalent, so on others only half of the limit fails.
//
// V198 the verifier stays within the budget file
func TestVerifierBudget(t *testing.T) {
	t.Parallel()
	kernel, work := kernelSeries(t), verifierWork(t)
	if *updateBudget {
		writeBudget(t, kernel, work)
	}
	budgetKernel, budget := readBudget(t)
	for name, n := range work {
		allowed, ok := budget[name]
		switch {
		case !ok:
			t.Errorf("%s has no line in %s: `make update` adds it", name, budgetFile)
		case kernel == budgetKernel && n > allowed+allowed/20:
			t.Errorf("%s: the verifier goes through %d instructions, over 5 %% more than the %d of %s", name, n, allowed, budgetFile)
		case n > verifierHalf:
			t.Errorf("%s: Linux %s goes through %d instructions, over half of its limit (Linux %s: %d)", name, kernel, n, budgetKernel, allowed)
		}
	}
	for name := range budget {
		if _, ok := work[name]; !ok {
			t.Errorf("%s has a line in %s, but no program: `make update` removes it", name, budgetFile)
		}
	}
}

// verifierWork loads every program and returns how many instructions the verifier processed.
func verifierWork(t *testing.T) map[string]int {
	t.Helper()
	work := map[string]int{}
	for _, c := range []struct {
		read   func() (*ebpf.CollectionSpec, error)
		suffix string
	}{
		{bpf.LoadTc, ""},
		{bpf.LoadTcTrace, "+trace"},
		{bpf.LoadTcSCTP, "+sctp"},
		{bpf.LoadTcProxy, "+proxy"},
		{bpf.LoadTcQUIC, "+quic"},
		{bpf.LoadSweep, ""},
		{bpf.LoadSock, ""},
		{bpf.LoadDecap, ""},
		{bpf.LoadGtp, ""},
		{bpf.LoadXdp, ""},
		{bpf.LoadXdpTrace, "+trace"},
		{bpf.LoadProbe, ""},
	} {
		spec, err := c.read()
		if err != nil {
			t.Fatal(err)
		}
		objects, err := ebpf.NewCollection(spec)
		if err != nil {
			t.Fatal(err)
		}
		for name, p := range objects.Programs {
			name += c.suffix
			info, err := p.Info()
			if err != nil {
				t.Fatal(err)
			}
			n, ok := info.VerifiedInstructions()
			if !ok {
				t.Fatal("the kernel does not report how many instructions the verifier processed")
			}
			work[name] = int(n)
		}
		objects.Close()
	}
	return work
}

func kernelSeries(t *testing.T) string {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	parts := strings.SplitN(unix.ByteSliceToString(name.Release[:]), ".", 3)
	return strings.Join(parts[:2], ".")
}

func writeBudget(t *testing.T, kernel string, work map[string]int) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "kernel %s\n", kernel)
	for _, name := range slices.Sorted(maps.Keys(work)) {
		fmt.Fprintf(&b, "%s %d\n", name, work[name])
	}
	if err := os.WriteFile(budgetFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readBudget(t *testing.T) (kernel string, budget map[string]int) {
	t.Helper()
	f, err := os.Open(budgetFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	budget = map[string]int{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var name, value string
		if _, err := fmt.Sscan(lines.Text(), &name, &value); err != nil {
			t.Fatalf("%s: %q: %v", budgetFile, lines.Text(), err)
		}
		if name == "kernel" {
			kernel = value
			continue
		}
		var n int
		if _, err := fmt.Sscan(value, &n); err != nil {
			t.Fatalf("%s: %q: %v", budgetFile, lines.Text(), err)
		}
		budget[name] = n
	}
	return kernel, budget
}
