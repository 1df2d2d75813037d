package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"loxilb/test/packet/lab"
)

// cpuRuns is how many connections each CPU opens, cpuRounds how often that is measured.
const (
	cpuRuns   = 2000
	cpuRounds = 9
)

// measureCPUs opens connections on one CPU and on two at once, to one service and to a service
// each: what two pay more than one is what they wait for each other's lines of cache. Means of all
// runs, as the kernel adds up the time of all CPUs.
func measureCPUs(l *lab.Lab, p *programs) ([]pathCost, error) {
	const first, second = "10.0.0.1:80", "10.0.0.4:80"
	cases := []struct {
		name string
		vips []string
	}{
		{"new connection (SYN), one CPU, mean", []string{first}},
		{"... two CPUs at once, one service", []string{first, first}},
		{"... two CPUs at once, a service each", []string{first, second}},
	}
	costs := make([]pathCost, len(cases))
	took := make([][]float64, len(cases))
	client := 0
	for range cpuRounds {
		for i, c := range cases {
			t, err := openOnCPUs(l, p, c.vips, &client)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			took[i] = append(took[i], t)
		}
	}
	for i, c := range cases {
		costs[i] = pathCost{Path: c.name, Services: 1, Connections: 1, Own: spreadOf(took[i])}
	}
	return costs, nil
}

// openOnCPUs has one CPU for each VIP open connections to it, all at once, and returns what one
// took, in nanoseconds.
func openOnCPUs(l *lab.Lab, p *programs, vips []string, client *int) (float64, error) {
	var frames [][][]byte
	ifindex := 0
	for _, vip := range vips {
		var own [][]byte
		for range cpuRuns {
			*client++
			n := *client
			link, frame, err := build(l, fmt.Sprintf("client tcp 9.%d.%d.%d:%d > %s S seq 1000", n>>16&255, n>>8&255, n&255, 2000+n%50_000, vip), 0, "")
			if err != nil {
				return 0, err
			}
			own, ifindex = append(own, frame), link.Index
		}
		frames = append(frames, own)
	}
	before, err := p.live.Stats()
	if err != nil {
		return 0, err
	}
	space, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return 0, err
	}
	defer space.Close()
	var running sync.WaitGroup
	errs := make([]error, len(frames))
	for cpu := range frames {
		running.Go(func() { errs[cpu] = onCPU(cpu, space, func() error { return runAll(p, frames[cpu], ifindex) }) })
	}
	running.Wait()
	after, err := p.live.Stats()
	if err = errors.Join(append(errs, err)...); err != nil {
		return 0, err
	}
	return float64((after.Runtime - before.Runtime).Nanoseconds()) / float64(after.RunCount-before.RunCount), nil
}

func runAll(p *programs, frames [][]byte, ifindex int) error {
	for _, frame := range frames {
		if err := runOnce(p.live, frame, ifindex); err != nil {
			return err
		}
	}
	return nil
}

// onCPU runs something on a CPU and in a network namespace.
func onCPU(cpu int, space *os.File, run func() error) error {
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the namespace: %w", err)
	}
	var set unix.CPUSet
	set.Set(cpu % runtime.NumCPU())
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("stay on CPU %d: %w", cpu, err)
	}
	return run()
}
