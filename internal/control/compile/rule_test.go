package compile

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/policy"
	"loxilb/test/ruletest"
)

func interfaceIndex(name string) (int, bool) {
	i, ok := map[string]int{"client": 1, "server": 2}[name]
	if n, isEther := strings.CutPrefix(name, "eth"); isEther {
		i, err := strconv.Atoi(n)
		return i + 10, err == nil
	}
	return i, ok
}

// TestRulesFind checks that the trees find the same rule as a linear search in order.
func TestRulesFind(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 9, 300} {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		sets := ruletest.Sets(n, rng)
		maps.Copy(sets, ruletest.Hostile(n, rng))
		for name, list := range sets {
			table, err := Rules(list, interfaceIndex)
			if err != nil {
				t.Fatal(err)
			}
			ordered := map[uint64]*policy.Rule{}
			for i := range list {
				ordered[RuleIdentity(&list[i])] = &list[i]
			}
			if len(ordered) != n {
				t.Fatalf("%s: %d of %d rules have an identity of their own", name, len(ordered), n)
			}
			for range 3000 {
				p := ruletest.Packet(&list[rng.IntN(n)], rng)
				var want *bpf.TcRule
				for i := range table.Rules {
					if ruletest.Matches(ordered[table.Rules[i].Identity], &p, interfaceIndex) {
						want = &table.Rules[i]
						break
					}
				}
				if got, _, _ := table.Find(&p); got != want {
					t.Fatalf("%d %s: %+v finds %+v, want %+v", n, name, p, got, want)
				}
			}
		}
	}
}

// TestRulesSize checks that trees of thousands of rules of any kind fit, and that realistic rules
// need few comparisons.
func TestRulesSize(t *testing.T) {
	t.Parallel()
	const n = 3000 // BenchmarkRules measures 10,000
	rng := rand.New(rand.NewPCG(1, 2))
	for name, list := range ruletest.Sets(n, rng) {
		table, err := Rules(list, interfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		var nodes, rules, worst int
		const packets = 2000
		for range packets {
			p := ruletest.Packet(&list[rng.IntN(n)], rng)
			_, a, b := table.Find(&p)
			nodes, rules, worst = nodes+a, rules+b, max(worst, a+b)
		}
		t.Logf("%s: %d nodes, %d entries; a packet looks at %.1f nodes and %.1f rules, %d at most", name, len(table.Nodes), len(table.Entries),
			float64(nodes)/packets, float64(rules)/packets, worst)
		most := 20
		if slices.Contains([]string{"mixed", "wide", "nested ports"}, name) {
			most = 100
		}
		if worst > most {
			t.Errorf("%s: a packet looks at %d nodes and rules, over %d", name, worst, most)
		}
	}
}

// TestRulesHostile checks that the maximum number of rules compiles in a bounded number of steps
// and bytes, even if nearly every packet is in the ranges of thousands of them, and that few are
// compared.
func TestRulesHostile(t *testing.T) {
	const (
		maxSteps    = 2 * buildWork // the last split may exceed buildWork
		maxBytes    = 200 << 20
		maxRules    = 400 // compared with one packet in all trees, at worst
		averageCost = 100
		packets     = 2000
	)
	rng := rand.New(rand.NewPCG(1, 2))
	sets := ruletest.Sets(policy.MaxRules, rng)
	maps.Copy(sets, ruletest.Hostile(policy.MaxRules, rng))
	for name, list := range sets {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		table, steps, err := compileRules(list, interfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		bytes := after.TotalAlloc - before.TotalAlloc
		cost := table.Cost()
		var sum int
		for range packets {
			p := ruletest.Packet(&list[rng.IntN(len(list))], rng)
			_, nodes, rules := table.Find(&p)
			sum += nodes + rules
			if nodes > cost.Nodes || rules > cost.Rules {
				t.Errorf("%s: a packet looks at %d nodes and %d rules, more than %+v", name, nodes, rules, cost)
			}
		}
		t.Logf("%s: %d thousand steps, %d MB; %d nodes, %d entries; packets look at %.1f, at most %+v",
			name, steps/1000, bytes>>20, len(table.Nodes), len(table.Entries), float64(sum)/packets, cost)
		if steps > maxSteps || bytes > maxBytes {
			t.Errorf("%s: compiling takes %d steps and %d bytes", name, steps, bytes)
		}
		if cost.Rules > maxRules || sum > averageCost*packets {
			t.Errorf("%s: packets look at too many rules", name)
		}
	}
}

// TestRulesGoldens compiles the rules of each file, which begin with "> ", and compares with the
// lines below. UPDATE=1 rewrites them.
func TestRulesGoldens(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/firewall/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		var list []policy.Rule
		for line := range strings.Lines(string(want)) {
			text, ok := strings.CutPrefix(line, "> ")
			if ok || strings.HasPrefix(line, "#") {
				got.WriteString(line)
			}
			if !ok {
				continue
			}
			r, err := policy.ParseRule(text)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			list = append(list, r)
		}
		table, err := Rules(list, interfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString(table.String())
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", file, diff)
		}
	}
}

// BenchmarkRules compiles 10,000 rules.
func BenchmarkRules(b *testing.B) {
	for name, list := range ruletest.Sets(10000, rand.New(rand.NewPCG(1, 2))) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Rules(list, interfaceIndex); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestRulesOfIPv6 checks that a rule for any IPv6 address does not match IPv4 addresses, which are
// stored among those of IPv6 in the maps.
func TestRulesOfIPv6(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"sourceIP:::/0 drop", "destinationIP:::/1 drop", "sourceIP:::/80 drop"} {
		r, err := policy.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		table, err := Rules([]policy.Rule{r}, interfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		four := policy.Rule{Source: netip.MustParsePrefix("10.0.0.0/8"), Destination: netip.MustParsePrefix("20.0.0.0/8")}
		p := ruletest.Packet(&four, rng)
		if got, _, _ := table.Find(&p); got != nil {
			t.Errorf("%s meets %+v", text, p)
		}
		six := r
		p = ruletest.Packet(&six, rng)
		if want := ruletest.Matches(&six, &p, interfaceIndex); want {
			if got, _, _ := table.Find(&p); got == nil {
				t.Errorf("%s does not meet %+v", text, p)
			}
		}
	}
}
