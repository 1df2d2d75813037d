package main

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// heldConnections is the number of simultaneous connections.
const heldConnections = 1_000_000

// measureHeld opens UDP connections, each answered once, and measures the rate, the kernel's
// additional memory, and the cost of packets with so many connections.
func measureHeld(_ context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
	if err := r.LB.AddRoute(netip.MustParsePrefix("10.99.0.0/16"), endpointAddr(r.Client)); err != nil {
		return nil, err
	}
	g, err := r.generate(manyFlows(heldConnections, to))
	if err != nil {
		return nil, err
	}
	defer g.close()
	back, err := newSink(r.Client, false)
	if err != nil {
		return nil, err
	}
	defer back.close()
	made, memory, err := r.makeConnections(g, back)
	if err != nil {
		return nil, err
	}
	some, err := g.truncated("eth0", ppsFlows)
	if err != nil {
		return nil, err
	}
	defer some.close()
	sinks, err := newSinks(r.serving, false)
	if err != nil {
		return nil, err
	}
	defer sinks.close()
	d := duration(s.Seconds)
	few, err := some.rate(sinks, d)
	if err != nil {
		return nil, err
	}
	all, err := g.rate(sinks, d)
	if err != nil {
		return nil, err
	}
	made.Work, memory.Work, few.Work, all.Work = "held-new", "held-bytes", "held-pps", "held-pps-all"
	return []sample{made, memory, few, all}, nil
}

// makeConnections sends a packet of each flow, which the endpoints return, and repeats unanswered
// ones.
func (r *rig) makeConnections(g *generator, back *sink) (made, memory sample, err error) {
	echo, err := newSinks(r.serving, true)
	if err != nil {
		return made, memory, err
	}
	defer echo.close()
	before, err := freeMemory()
	if err != nil {
		return made, memory, err
	}
	if made, err = g.sendCounted(echo, heldConnections); err != nil {
		return made, memory, err
	}
	if _, err = g.send(heldConnections); err != nil {
		return made, memory, err
	}
	after, err := freeMemory()
	if err != nil {
		return made, memory, err
	}
	answers, err := back.counted()
	if err != nil {
		return made, memory, err
	}
	if answers < heldConnections*99/100 {
		made.Invalid = fmt.Sprintf("%d answers to %d connections", answers, heldConnections)
	}
	memory.Value, memory.Invalid = (before-after)/heldConnections, made.Invalid
	return made, memory, nil
}

// freeMemory returns the unused memory in bytes, without the page cache.
func freeMemory() (sum float64, err error) {
	text := readFile("/proc/meminfo")
	for _, name := range []string{"MemFree", "Buffers", "Cached", "SReclaimable"} {
		kb, err := strconv.ParseFloat(strings.TrimSuffix(field(text, name), " kB"), 64)
		if err != nil {
			return 0, fmt.Errorf("read free memory: %w", err)
		}
		sum += kb * 1024
	}
	return sum, nil
}
