package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// example returns a result of three rounds, in which plain routing reaches base, loxilb reaches
// base times ratio, and nft fails once.
func example(ratio float64) *result {
	r := &result{
		Name: "example",
		Machine: machine{
			Date: "2026-01-02 03:04 UTC", CPU: "a <CPU>", CPUs: 2, Memory: "8 GB", Kernel: "6.18.0 PREEMPT", Offloads: "gro on",
			Commit: "0123abc", Load: "0.00 0.01 0.05", Mitigations: []string{"spectre_v2: Mitigation: Retpolines"},
			Versions: map[string]string{"wrk": "4.1.0", "nft": "1.0.6"},
		},
		Setting: setting{
			Layout: "one", MTU: 1500, Rounds: 3, Seconds: 5, Wrk: "-t2 -c100",
			Works: []string{"rps"}, Contenders: []string{baseline, "loxilb", "nft"},
		},
	}
	for round, base := range []float64{10000, 12000, 11000} {
		add := func(contender string, value float64, invalid string) {
			r.Samples = append(r.Samples, sample{
				Round: round + 1, Work: "rps", Contender: contender, Value: math.Round(value), Answers: value * 5, Invalid: invalid,
				Details: map[string]float64{"p50_us": 950, "p99_us": 12345},
			})
		}
		add(baseline, base, "")
		add("loxilb", base*ratio*(1+float64(round)/100), "")
		add("nft", base*0.9, map[int]string{1: "Socket errors: connect 1"}[round])
	}
	return r
}

func TestText(t *testing.T) {
	var b strings.Builder
	if err := writeText(&b, example(1.2)); err != nil {
		t.Fatal(err)
	}
	golden(t, "example.txt", b.String())
}

// TestChart checks that the chart is well-formed, and shows the measured values.
func TestChart(t *testing.T) {
	var b strings.Builder
	if err := chart(&b, example(1.2)); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(strings.NewReader(b.String()))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "example.svg", b.String())
}

// golden compares with a file of testdata; UPDATE=1 writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got):\n%s", path, d)
	}
}

// TestRatio checks that a ratio compares contenders within each round, and skips invalid rounds.
func TestRatio(t *testing.T) {
	r := example(1)
	if got := r.ratio("rps", "loxilb", baseline); math.Abs(got.Median-1.01) > 1e-3 || math.Abs(got.Max-1.02) > 1e-3 {
		t.Errorf("loxilb's ratio is %+v, want a median of 1.01 and a maximum of 1.02", got)
	}
	if got := r.ratio("rps", "nft", baseline); got.Rounds != 2 {
		t.Errorf("nft's ratio is %+v, want 2 rounds: its second one is invalid", got)
	}
}

func TestRegression(t *testing.T) {
	for _, c := range []struct {
		ratio float64
		want  int
	}{{1.2, 0}, {1.19, 0}, {1.1, 1}, {1.4, 0}} {
		if got := regressions(example(1.2), example(c.ratio)); len(got) != c.want {
			t.Errorf("regressions from ratio 1.2 to %v are %+v, want %d", c.ratio, got, c.want)
		}
	}
	if err := reportCheck(io.Discard, example(1.2), example(1.1)); !errors.Is(err, errRegression) {
		t.Errorf("a regression is reported as %v, want errRegression", err)
	}
	now := example(1.2)
	now.Samples = nil
	if err := reportCheck(io.Discard, example(1.2), now); err == nil || errors.Is(err, errRegression) {
		t.Errorf("a result without samples is reported as %v, want an error other than errRegression", err)
	}
}

func TestJudgeRetransmissions(t *testing.T) {
	r := example(1.2)
	for i := range r.Samples {
		switch s := &r.Samples[i]; s.Contender {
		case baseline:
			s.Retransmissions = 3 // per round of at most 60,000 answers
		case "loxilb":
			s.Retransmissions = 5
		case "nft":
			s.Retransmissions = 100
		}
	}
	r.judgeRetransmissions()
	if got := len(r.values("rps", "loxilb")); got != 3 {
		t.Errorf("with a few retransmissions %d rounds are valid, want 3; invalid: %v", got, r.invalid("rps", "loxilb"))
	}
	if got := len(r.values("rps", "nft")); got != 0 {
		t.Errorf("with many retransmissions %d rounds are valid, want none", got)
	}
}

func TestImbalance(t *testing.T) {
	for _, c := range []struct {
		counts []uint64
		wanted balance
		want   bool // reported as unbalanced
	}{
		{nil, evenBalance, false},
		{[]uint64{5}, evenBalance, false},
		{[]uint64{100, 110, 90}, evenBalance, false},
		{[]uint64{100, 49, 90}, evenBalance, true},
		{[]uint64{100, 49, 90}, everyEndpoint, false},
		{[]uint64{100, 0, 90}, everyEndpoint, true},
		{[]uint64{100, 0, 0}, anyEndpoint, false},
		{[]uint64{0, 0, 0}, anyEndpoint, true},
	} {
		if got := imbalance(c.counts, c.wanted); (got != "") != c.want {
			t.Errorf("%v, balance %d: got %q, want a complaint: %t", c.counts, c.wanted, got, c.want)
		}
	}
}

// TestCatalogue checks that names are unique, that groups select their workloads, and that the
// error for an unknown name lists the known ones.
func TestCatalogue(t *testing.T) {
	s := setting{Works: []string{"crr", "rr-1"}}
	ws, err := workloadsNamed(s)
	got, _ := names(ws, nil)
	if d := cmp.Diff([]string{"crr-1", "crr-50", "rr-1"}, got); d != "" || err != nil {
		t.Errorf("names of crr and rr-1: %v (-want +got):\n%s", err, d)
	}
	if _, err := workloadsNamed(setting{Works: []string{"rsp"}}); err == nil || !strings.Contains(err.Error(), "rps, cps") {
		t.Errorf("the error for an unknown workload is %v, want a list of the known ones", err)
	}
	if _, err := contendersNamed([]string{"envoy"}); err == nil || !strings.Contains(err.Error(), "routing, loxilb-one") {
		t.Errorf("the error for an unknown contender is %v, want a list of the known ones", err)
	}
	seen := map[string]bool{}
	for _, c := range contenders() {
		if seen[c.name] {
			t.Errorf("two contenders are called %s", c.name)
		}
		seen[c.name] = true
	}
}

// TestFrames checks that the generator sends frames of minimal size with correct checksums, and
// that flows differ.
func TestFrames(t *testing.T) {
	to := netip.MustParseAddrPort("20.20.20.1:84")
	flows := append(manyFlows(60_000, to), flow{tcp: true, from: netip.MustParseAddrPort("100.100.100.1:4000"), to: to, seq: 7, ack: 9})
	seen := map[string]bool{}
	for i, f := range flows {
		if i > 100 && i < 49_990 {
			continue
		}
		b, err := f.frame(make([]byte, 6), make([]byte, 6))
		if err != nil {
			t.Fatal(err)
		}
		if sum := onesComplement(b[14:34]); sum != 0xffff {
			t.Errorf("flow %d: the IP header's sum is %#x", i, sum)
		}
		if seen[string(b[:])] {
			t.Errorf("flow %d has the frame of an earlier flow", i)
		}
		seen[string(b[:])] = true
	}
}

func onesComplement(b []byte) (sum uint32) {
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return sum
}
