package main

import (
	"fmt"
	"regexp"
	"strconv"
)

// ring is a line of BenchmarkEstablished of internal/kernel/datapath: established packets one right
// after the other, each of another one of so many flows, so that 2 flows are in the cache and
// 200,000 are not.
type ring struct {
	Flows string  `json:"flows"` // v4/200k
	Empty float64 `json:"empty"` // ns
	Own   float64 `json:"own"`
}

var ringLine = regexp.MustCompile(`(?m)^BenchmarkEstablished/(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) empty-ns\s+(-?[\d.]+) own-ns`)

// parseRings reads what the Go benchmark prints.
func parseRings(text string) (out []ring, err error) {
	for _, m := range ringLine.FindAllStringSubmatch(text, -1) {
		empty, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		own, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return nil, err
		}
		out = append(out, ring{m[1], empty, own})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no line of BenchmarkEstablished in %.200q", text)
	}
	return out, nil
}
