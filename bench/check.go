package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// errRegression says that a result is worse than an earlier one.
var errRegression = errors.New("worse than the earlier result")

// regression is a work that a contender of ours does worse than before.
type regression struct {
	work, contender string
	before, now     spread // of the ratio to plain routing
}

// regressions compares our contenders' ratios to plain routing with an earlier result's, never
// absolute numbers: those are the machine's. Worse is what the spreads of rounds cannot explain
// (spread.apart).
func regressions(earlier, now *result) (out []regression) {
	for _, w := range now.works() {
		for _, c := range now.contenders(w.name) {
			if !strings.HasPrefix(c, "loxilb") {
				continue
			}
			a, b := earlier.ratio(w.name, c, baseline), now.ratio(w.name, c, baseline)
			if a.Rounds == 0 || b.Rounds == 0 || !a.apart(b) {
				continue
			}
			if worse := b.Median < a.Median; worse != w.less {
				out = append(out, regression{w.name, c, a, b})
			}
		}
	}
	return out
}

// compared returns how many ratios two results have in common.
func compared(earlier, now *result) (n int) {
	for _, w := range now.works() {
		for _, c := range now.contenders(w.name) {
			if strings.HasPrefix(c, "loxilb") && earlier.ratio(w.name, c, baseline).Rounds > 0 && now.ratio(w.name, c, baseline).Rounds > 0 {
				n++
			}
		}
	}
	return n
}

func reportCheck(out io.Writer, earlier, now *result) error {
	n := compared(earlier, now)
	if n == 0 {
		return fmt.Errorf("nothing to compare: no contender of ours has a ratio to %s in both results", baseline)
	}
	worse := regressions(earlier, now)
	fmt.Fprintf(out, "\ncompared with commit %s: %d ratios to plain routing, %d worse\n", earlier.Machine.Commit, n, len(worse))
	for _, g := range worse {
		fmt.Fprintf(out, "  %s %s: %s before, %s now\n", g.work, g.contender, times(g.before, false), times(g.now, false))
	}
	if len(worse) > 0 {
		return errRegression
	}
	return nil
}

// checkMain compares two files: `bench check EARLIER.json NOW.json`.
func checkMain(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: bench check EARLIER.json NOW.json")
	}
	earlier, err := readResult(args[0])
	if err != nil {
		return err
	}
	now, err := readResult(args[1])
	if err != nil {
		return err
	}
	return reportCheck(os.Stdout, earlier, now)
}
