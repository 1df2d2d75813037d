package main

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// programTime measures, by the kernel's statistics, the mean cost of packets in a process's
// program. An empty program shows the cost of measuring.
type programTime struct {
	live, empty *ebpf.Program
	before      ebpf.ProgramStats
	stop        func() error
}

// emptyRuns is the number of runs of the empty program.
const emptyRuns = 100_000

// startProgramTime starts to measure the program that a process has loaded, and holds as an open
// file. Measuring costs some 40 ns per run of the program.
func startProgramTime(pid int) (*programTime, error) {
	live, err := programOf(fmt.Sprint(pid))
	if err != nil {
		return nil, err
	}
	t := &programTime{live: live}
	if t.empty, err = newEmptyProgram(); err != nil {
		return nil, errors.Join(err, t.close())
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("enable run-time statistics of BPF programs: %w", err), t.close())
	}
	t.stop = stats.Close
	before, err := live.Stats()
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	t.before = *before
	return t, nil
}

// mean returns the mean cost of a packet since the start, beyond an empty program, in nanoseconds;
// 0 without packets.
func (t *programTime) mean() (ns float64, err error) {
	if err := runOften(t.empty, make([]byte, 64), 1, emptyRuns); err != nil {
		return 0, err
	}
	empty, err := t.empty.Stats()
	if err != nil {
		return 0, err
	}
	after, err := t.live.Stats()
	if err != nil || after.RunCount == t.before.RunCount {
		return 0, err
	}
	took := float64((after.Runtime - t.before.Runtime).Nanoseconds()) / float64(after.RunCount-t.before.RunCount)
	return took - float64(empty.Runtime.Nanoseconds())/float64(empty.RunCount), nil
}

func (t *programTime) close() error {
	var errs []error
	for _, p := range []*ebpf.Program{t.live, t.empty} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	if t.stop != nil {
		errs = append(errs, t.stop())
	}
	return errors.Join(errs...)
}

// flood runs the flood. If the balancer is loxilb, it also measures the cost of a packet in its
// program.
func (st *floodResult) flood(r *rig, g *generator, s setting) (err error) {
	if r.daemonPid == 0 {
		st.sent, st.received, err = r.attacker.flood(g, duration(s.Seconds))
		return err
	}
	t, err := startProgramTime(r.daemonPid)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if st.sent, st.received, err = r.attacker.flood(g, duration(s.Seconds)); err != nil {
		return err
	}
	st.cost, err = t.mean()
	return err
}
