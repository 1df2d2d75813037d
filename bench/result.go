package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// baseline is the contender that all others are compared with.
const baseline = "routing"

// result is all that a run of the benchmark found; text, chart and comparison are made from it
// alone.
type result struct {
	Name    string   `json:"name"`
	Machine machine  `json:"machine"`
	Setting setting  `json:"setting"`
	Samples []sample `json:"samples"`
}

// setting is the configuration of a run.
type setting struct {
	Layout     string   `json:"layout"`
	MTU        int      `json:"mtu"`
	Rounds     int      `json:"rounds"`
	Seconds    float64  `json:"seconds"` // of each measurement
	Warmup     float64  `json:"warmup"`  // seconds before it
	Wrk        string   `json:"wrk"`
	Table      int      `json:"table,omitempty"` // connections that loxilb is given room for; 0: its default
	Works      []string `json:"works"`
	Contenders []string `json:"contenders"`
}

// sample is one measurement: a workload, by a contender, in a round.
type sample struct {
	Round           int                `json:"round"` // from 1
	Work            string             `json:"work"`
	Contender       string             `json:"contender"`
	Value           float64            `json:"value"`             // in the workload's unit
	Details         map[string]float64 `json:"details,omitempty"` // what else was measured, units in the names
	Answers         float64            `json:"answers,omitempty"` // by which retransmissions are judged
	Retransmissions uint64             `json:"retransmissions"`   // of TCP, in all namespaces
	Endpoints       []uint64           `json:"endpoints,omitempty"`
	Invalid         string             `json:"invalid,omitempty"` // why the value must not be used
}

func readResult(path string) (*result, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseResult(path, b)
}

func parseResult(from string, b []byte) (*result, error) {
	r := new(result)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("read %s: %w", from, err)
	}
	return r, nil
}

// values returns a contender's valid values of a workload, by round.
func (r *result) values(workload, contender string) map[int]float64 {
	out := map[int]float64{}
	for _, s := range r.Samples {
		if s.Work == workload && s.Contender == contender && s.Invalid == "" {
			out[s.Round] = s.Value
		}
	}
	return out
}

// of returns the spread of a contender's values.
func (r *result) of(workload, contender string) spread {
	var all []float64
	for _, v := range r.values(workload, contender) {
		all = append(all, v)
	}
	return spreadOf(all)
}

// ratio returns the spread of a contender's values relative to another contender's in the same
// rounds.
func (r *result) ratio(workload, contender, to string) spread {
	var all []float64
	base := r.values(workload, to)
	for round, v := range r.values(workload, contender) {
		if b := base[round]; b > 0 {
			all = append(all, v/b)
		}
	}
	return spreadOf(all)
}

// detail returns the spread of a contender's value with this name.
func (r *result) detail(workload, contender, name string) spread {
	var all []float64
	for _, s := range r.Samples {
		if v, ok := s.Details[name]; ok && s.Work == workload && s.Contender == contender && s.Invalid == "" {
			all = append(all, v)
		}
	}
	return spreadOf(all)
}

// workloads returns the measured workloads in the order of the catalogue, and contenders the
// contenders of a workload.
func (r *result) workloads() []workload {
	return slices.DeleteFunc(workloads(r.Setting), func(w workload) bool { return len(r.contenders(w.name)) == 0 })
}

func (r *result) contenders(workload string) (out []string) {
	for _, name := range r.Setting.Contenders {
		if slices.ContainsFunc(r.Samples, func(s sample) bool { return s.Work == workload && s.Contender == name }) {
			out = append(out, name)
		}
	}
	return out
}

// invalid returns the distinct reasons why samples of a contender are invalid.
func (r *result) invalid(workload, contender string) (out []string) {
	for _, s := range r.Samples {
		if s.Work == workload && s.Contender == contender && s.Invalid != "" && !slices.Contains(out, s.Invalid) {
			out = append(out, s.Invalid)
		}
	}
	return out
}

// balance is how requests must be spread over endpoints.
type balance int

const (
	anyEndpoint   balance = iota // one endpoint suffices: one connection has one endpoint
	everyEndpoint                // each endpoint must answer
	evenBalance                  // and at least half as often as any other
)

// imbalance returns a sentence if the endpoints' answers are not balanced as wanted, otherwise "".
func imbalance(counts []uint64, want balance) string {
	if len(counts) == 0 {
		return ""
	}
	least, most := slices.Min(counts), slices.Max(counts)
	if most == 0 || want != anyEndpoint && least == 0 || want == evenBalance && least*2 < most {
		return fmt.Sprintf("the endpoints answered %v", counts)
	}
	return ""
}

// judgeRetransmissions marks samples with more retransmissions, per answer, than plain routing had
// in its worst round, and some more as the workload allows. It needs all rounds; without plain
// routing there is nothing to judge by.
func (r *result) judgeRetransmissions() {
	worst, seen, more := map[string]float64{}, map[string]bool{}, map[string]float64{}
	for _, w := range workloads(r.Setting) {
		more[w.name] = w.maxRetransmissions
	}
	for _, s := range r.Samples {
		if s.Contender == baseline && s.Invalid == "" && s.Answers > 0 {
			worst[s.Work] = max(worst[s.Work], float64(s.Retransmissions)/s.Answers)
			seen[s.Work] = true
		}
	}
	for i := range r.Samples {
		s := &r.Samples[i]
		if !seen[s.Work] || s.Invalid != "" || s.Answers == 0 {
			continue
		}
		if rate := float64(s.Retransmissions) / s.Answers; rate > worst[s.Work]+more[s.Work] {
			s.Invalid = fmt.Sprintf("%d retransmissions, %.1f in 10,000 answers; plain routing has at most %.1f",
				s.Retransmissions, rate*1e4, worst[s.Work]*1e4)
		}
	}
}

// errRegression reports a result that is worse than an earlier one.
var errRegression = errors.New("worse than the earlier result")

// regression is a workload at which one of loxilb's contenders has become worse.
type regression struct {
	workload, contender string
	before, now         spread // of the ratio to plain routing
}

// regressions compares loxilb's ratios to plain routing with those of an earlier result, never
// absolute numbers, which depend on the machine. A difference counts if the spreads of rounds do
// not explain it (spread.isDistinct).
func regressions(earlier, now *result) (out []regression) {
	for _, w := range now.workloads() {
		for _, c := range now.contenders(w.name) {
			if !strings.HasPrefix(c, "loxilb") {
				continue
			}
			a, b := earlier.ratio(w.name, c, baseline), now.ratio(w.name, c, baseline)
			if a.Rounds == 0 || b.Rounds == 0 || !a.isDistinct(b) {
				continue
			}
			if worse := b.Median < a.Median; worse != w.less {
				out = append(out, regression{w.name, c, a, b})
			}
		}
	}
	return out
}

// compared returns the number of ratios that two results share.
func compared(earlier, now *result) (n int) {
	for _, w := range now.workloads() {
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
		return fmt.Errorf("nothing to compare: no loxilb contender has a ratio to %s in both results", baseline)
	}
	worse := regressions(earlier, now)
	fmt.Fprintf(out, "\ncompared with commit %s: %d ratios to plain routing, %d worse\n", earlier.Machine.Commit, n, len(worse))
	for _, g := range worse {
		fmt.Fprintf(out, "  %s %s: %s before, %s now\n", g.workload, g.contender, ratioText(g.before, false), ratioText(g.now, false))
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
