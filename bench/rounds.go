package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// patience is the additional time that a measurement may take.
const patience = 2 * time.Minute

// measureAll measures every workload with every contender in every round. The order of contenders
// is reversed in every other round (A B C, C B A), so a machine that slows down affects all of them
// equally.
func measureAll(ctx context.Context, o options, progress io.Writer) (*result, error) {
	cs, err := contendersNamed(o.Contenders)
	if err != nil {
		return nil, err
	}
	ws, err := workloadsNamed(o.setting)
	if err != nil {
		return nil, err
	}
	res := &result{Name: o.name, Setting: o.setting, Machine: describeMachine(o.commit, o.clock)}
	res.Setting.Works, res.Setting.Contenders = names(ws, cs)
	for round := 1; round <= o.Rounds; round++ {
		for _, w := range ws {
			for _, c := range orderInRound(cs, round) {
				if !w.fits(c) || len(o.Contenders) == 0 && len(w.defaults) > 0 && !slices.Contains(w.defaults, c.name) {
					continue
				}
				samples := measure(ctx, o, c, w, &res.Machine)
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				for _, s := range samples {
					if s.Work == "held-bytes" && c.name == baseline {
						continue // it holds no connections
					}
					s.Round, s.Contender = round, c.name
					if s.Work == "" {
						s.Work = w.name
					}
					res.Samples = append(res.Samples, s)
					printSample(progress, o.Rounds, s)
				}
			}
		}
	}
	res.judgeRetransmissions()
	return res, nil
}

func names(ws []workload, cs []contender) (workloads, contenders []string) {
	for _, w := range ws {
		workloads = append(workloads, w.name)
	}
	for _, c := range cs {
		contenders = append(contenders, c.name)
	}
	return workloads, contenders
}

// orderInRound returns the order of contenders in a round.
func orderInRound(cs []contender, round int) []contender {
	cs = slices.Clone(cs)
	if round%2 == 0 {
		slices.Reverse(cs)
	}
	return cs
}

// measure configures a contender, checks that it balances, measures, and removes it. A failure
// makes an invalid sample, so other samples are kept.
func measure(ctx context.Context, o options, c contender, w workload, m *machine) []sample {
	ctx, cancel := context.WithTimeout(ctx, patience+4*duration(o.Seconds))
	defer cancel()
	failed := func(what string, err error) []sample {
		return []sample{{Work: w.name, Invalid: fmt.Sprintf("%s: %v", what, err)}}
	}
	if w.single && !o.cpus.steered {
		o.cpus = oneCPU()
	}
	if w.sparesCPU {
		o.cpus = spareCPU(o.cpus)
	}
	s := w.service
	if s.endpoints == 0 {
		s.endpoints = c.endpoints
	}
	r, err := newRig(ctx, o, c, s)
	if err != nil {
		return failed("topology", err)
	}
	defer r.Close()
	if m.Offloads == "" {
		m.Offloads = offloads(r.Client, "eth0")
	}
	to, err := c.setup(ctx, r, s)
	if err != nil {
		return failed("set up", err)
	}
	samples, err := w.run(ctx, r, o.setting, to)
	if err != nil {
		return failed("measure", err)
	}
	return samples
}

func printSample(w io.Writer, rounds int, s sample) {
	if s.Invalid != "" {
		fmt.Fprintf(w, "round %d/%d  %-12s %-16s not valid: %.300s\n", s.Round, rounds, s.Work, s.Contender, s.Invalid)
		return
	}
	fmt.Fprintf(w, "round %d/%d  %-12s %-16s %s\n", s.Round, rounds, s.Work, s.Contender, numberText(s.Value))
}

// spread is the median, minimum and maximum of the rounds.
type spread struct {
	Median, Min, Max float64
	Rounds           int
}

// spreadOf returns the spread of values, which need no order; the zero spread of none.
func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	v := slices.Sorted(slices.Values(values))
	mid := v[len(v)/2]
	if len(v)%2 == 0 {
		mid = (mid + v[len(v)/2-1]) / 2
	}
	return spread{Median: mid, Min: v[0], Max: v[len(v)-1], Rounds: len(v)}
}

// isDistinct reports whether two spreads differ by more than chance: each median is outside the
// other's spread. Requiring disjoint spreads would let a few noisy rounds hide any loss.
func (s spread) isDistinct(o spread) bool {
	return s.Median < o.Min && o.Median > s.Max || s.Median > o.Max && o.Median < s.Min
}
