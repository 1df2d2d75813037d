package differential

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// options are the values of flags. The defaults are for `make test`: each run has the same
// sequences.
type options struct {
	seed      uint64
	sequences int
	update    bool
}

func flags() options {
	get := func(name string) any { return flag.Lookup(name).Value.(flag.Getter).Get() }
	return options{get("seed").(uint64), get("sequences").(int), get("update").(bool)}
}

const (
	defaultSequences = 300
	steps            = 50 // in a sequence
	documentation    = "../../docs/differential.md"
)

func TestMain(m *testing.M) {
	flag.Uint64("seed", 1, "of the first sequence")
	flag.Int("sequences", defaultSequences, "how many, each with the next seed")
	flag.Bool("update", false, "write the documentation")
	os.Exit(m.Run())
}

// TestDifferential compares both load balancers on random sequences.
//
// V200 random sequences compared with nftables and nf_conntrack
func TestDifferential(t *testing.T) {
	t.Parallel()
	p := newPair()
	defer func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	}()
	opts := flags()
	seen, compared := map[string]int{}, 0
	for i := range opts.sequences {
		q := generate(opts.seed+uint64(i), steps)
		v, err := compareBoth(p, q, q)
		if err != nil {
			t.Fatalf("seed %d: %v", q.seed, err)
		}
		if v.bad != nil {
			t.Fatal(explain(p, q))
		}
		for name, n := range v.seen {
			seen[name] += n
		}
		compared += v.compared
	}
	t.Logf("%d steps compared in %d sequences; intended differences: %v", compared, opts.sequences, seen)
	if opts.sequences < defaultSequences {
		return
	}
	if compared < opts.sequences*steps/2 {
		t.Errorf("%d steps compared, want at least half of them: an intended difference hides too much", compared)
	}
	for _, d := range differences() {
		if seen[d.name] == 0 {
			t.Errorf("the difference %s never occurs: remove it, or make the generator create such packets", d.name)
		}
	}
}

// compareBoth sends q through loxilb and r through the kernel, and compares the outcomes.
func compareBoth(p *pair, q, r *sequence) (verdict, error) {
	ours, kernel, err := p.runTwo(q, r)
	if err != nil {
		return verdict{}, err
	}
	return compare(q, ours, kernel), nil
}

// explain describes a failure: a minimal sequence that still fails, as a packet script, and both
// outcomes of its last step.
func explain(p *pair, q *sequence) string {
	seed := q.seed
	q = shrink(p, q)
	ours, kernel, err := p.run(q)
	if err != nil {
		return err.Error()
	}
	v := compare(q, ours, kernel)
	return fmt.Sprintf("seed %d, as a script, with loxilb's outcome:\n\n%s\n%s", seed, script(p.ours.network, q, ours), v.bad)
}

// TestDetectsDifferences checks that the test detects a service that differs between the two
// balancers.
func TestDetectsDifferences(t *testing.T) {
	t.Parallel()
	p := newPair()
	defer func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		name  string
		spoil func(*sequence)
	}{
		{"another port of the endpoint", func(q *sequence) { q.services[0].Endpoints[0].Port++ }},
		{"endpoints the other way round", func(q *sequence) {
			e := q.services[0].Endpoints
			e[0], e[1] = e[1], e[0]
		}},
		{"another mode", func(q *sequence) { q.services[0].Mode ^= 2 }},
	} {
		q := opening()
		spoilt := opening()
		c.spoil(spoilt)
		v, err := compareBoth(p, q, spoilt)
		if err != nil {
			t.Fatal(err)
		}
		if v.bad == nil {
			t.Errorf("%s: no difference was detected", c.name)
		}
	}
}

// opening returns a sequence that opens a TCP connection.
func opening() *sequence {
	for seed := uint64(0); ; seed++ {
		if q := generate(seed, steps); q.flows[0].vip.Port() == 80 && len(q.services[0].Endpoints) == 2 &&
			q.flows[0].vip.Addr() == q.services[0].VIP && q.services[0].Mode == 0 {
			return q
		}
	}
}

// TestDocumentation compares docs/differential.md with the table.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	want := document()
	if flags().update {
		if err := os.WriteFile(documentation, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(documentation)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("%s differs from the table (- table, + file); run make update\n%s", documentation, diff)
	}
}
