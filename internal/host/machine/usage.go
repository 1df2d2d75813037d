package machine

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CPUTime is the time of all CPUs together since the machine started, in ticks.
type CPUTime struct{ Idle, Total uint64 }

// CPUTimes reads the CPU time from /proc/stat.
func CPUTimes() (t CPUTime, err error) {
	first, _, _ := strings.Cut(readOrEmpty("/proc/stat"), "\n")
	fields := strings.Fields(first)
	if len(fields) < 9 || fields[0] != "cpu" {
		return t, errors.New("/proc/stat has no line for all CPUs")
	}
	for i, field := range fields[1:9] { // user nice system idle iowait irq softirq steal; user and nice include guests
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return t, err
		}
		if t.Total += n; i == 3 {
			t.Idle = n
		}
	}
	return t, nil
}

// BusySince returns the percentage of time that CPUs were busy since before; false: no time has
// passed, or the counters decreased.
func (t CPUTime) BusySince(before CPUTime) (float64, bool) {
	if t.Total <= before.Total || t.Idle < before.Idle {
		return 0, false
	}
	return 100 * (1 - float64(t.Idle-before.Idle)/float64(t.Total-before.Total)), true
}

// MemoryUsed returns the percentage of the machine's memory that is not available to programs.
func MemoryUsed() (float64, error) {
	const meminfo = "/proc/meminfo"
	total, _ := numberAfter(meminfo, "MemTotal:")
	available, _ := numberAfter(meminfo, "MemAvailable:")
	if total == 0 || available > total {
		return 0, errors.New("/proc/meminfo does not have MemTotal and MemAvailable")
	}
	return 100 * (1 - float64(available)/float64(total)), nil
}

// DiskUsed returns the percentage of a path's file system that is not available to users.
func DiskUsed(path string) (float64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, err
	}
	if s.Blocks == 0 {
		return 0, errors.New(path + " is on a file system without a size")
	}
	return 100 * (1 - float64(s.Bavail)/float64(s.Blocks)), nil
}

// readOrEmpty returns the content of a file, or "" if it cannot be read.
func readOrEmpty(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}
