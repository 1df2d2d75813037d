package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
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

// setting is what the run was asked for.
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

// sample is one measurement: a work, by a contender, in a round.
type sample struct {
	Round           int                `json:"round"` // from 1
	Work            string             `json:"work"`
	Contender       string             `json:"contender"`
	Value           float64            `json:"value"`             // in the work's unit
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

// values returns a contender's, by round, of a work; invalid ones are not among them.
func (r *result) values(work, contender string) map[int]float64 {
	out := map[int]float64{}
	for _, s := range r.Samples {
		if s.Work == work && s.Contender == contender && s.Invalid == "" {
			out[s.Round] = s.Value
		}
	}
	return out
}

// of returns the spread of a contender's values.
func (r *result) of(work, contender string) spread {
	var all []float64
	for _, v := range r.values(work, contender) {
		all = append(all, v)
	}
	return spreadOf(all)
}

// ratio returns the spread of a contender's values divided by another's of the same round.
func (r *result) ratio(work, contender, to string) spread {
	var all []float64
	base := r.values(work, to)
	for round, v := range r.values(work, contender) {
		if b := base[round]; b > 0 {
			all = append(all, v/b)
		}
	}
	return spreadOf(all)
}

// detail returns the spread of one of a contender's details.
func (r *result) detail(work, contender, name string) spread {
	var all []float64
	for _, s := range r.Samples {
		if v, ok := s.Details[name]; ok && s.Work == work && s.Contender == contender && s.Invalid == "" {
			all = append(all, v)
		}
	}
	return spreadOf(all)
}

// works lists the works that were measured, in the order of the catalogue, and contenders those of
// a work.
func (r *result) works() []work {
	return slices.DeleteFunc(works(r.Setting), func(w work) bool { return len(r.contenders(w.name)) == 0 })
}

func (r *result) contenders(work string) (out []string) {
	for _, name := range r.Setting.Contenders {
		if slices.ContainsFunc(r.Samples, func(s sample) bool { return s.Work == work && s.Contender == name }) {
			out = append(out, name)
		}
	}
	return out
}

// invalid returns the reasons, each once, for which samples of a contender must not be used.
func (r *result) invalid(work, contender string) (out []string) {
	for _, s := range r.Samples {
		if s.Work == work && s.Contender == contender && s.Invalid != "" && !slices.Contains(out, s.Invalid) {
			out = append(out, s.Invalid)
		}
	}
	return out
}
