// Package machine reports facts about the machine: its description, processes, file systems,
// network namespace, TCP sockets and use of CPUs.
package machine

import (
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// Process is a process as top shows it.
type Process struct {
	PID                       int
	User                      string
	Priority, Nice            int
	Virtual, Resident, Shared uint64 // bytes
	State                     string // a letter
	CPU, Memory               float64
	Time                      time.Duration // of CPUs
	Command                   string        // its name only: arguments may hold secrets
}

// Processes returns all processes in /proc. A process that ends meanwhile is left out.
func Processes() ([]Process, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	procs, err := fs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	up, err := Uptime()
	if err != nil {
		return nil, err
	}
	memory, err := totalMemory(fs)
	if err != nil {
		return nil, err
	}
	var out []Process
	names := map[uint32]string{}
	for _, p := range procs {
		one, err := describe(p, up, memory)
		if err != nil {
			continue
		}
		one.User = userName(p.PID, names)
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b Process) int { return a.PID - b.PID })
	return out, nil
}

func describe(p procfs.Proc, up time.Duration, memory uint64) (Process, error) {
	stat, err := p.Stat()
	if err != nil {
		return Process{}, err
	}
	out := Process{
		PID: p.PID, Priority: stat.Priority, Nice: stat.Nice, State: stat.State, Command: stat.Comm,
		Virtual: uint64(stat.VirtualMemory()), Resident: uint64(stat.ResidentMemory()),
		Time: time.Duration(stat.CPUTime() * float64(time.Second)),
	}
	if m, err := p.Statm(); err == nil {
		out.Shared = m.Shared * uint64(os.Getpagesize())
	}
	if memory > 0 {
		out.Memory = 100 * float64(out.Resident) / float64(memory)
	}
	const ticks = 100 // a second, on every architecture (USER_HZ)
	if lived := up - time.Duration(stat.Starttime)*time.Second/ticks; lived > 0 {
		out.CPU = 100 * float64(out.Time) / float64(lived)
	}
	return out, nil
}

// userName returns the name of a process's user, or the number of a user without a name.
func userName(pid int, names map[uint32]string) string {
	info, err := os.Stat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	if name, ok := names[st.Uid]; ok {
		return name
	}
	name := strconv.FormatUint(uint64(st.Uid), 10)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	names[st.Uid] = name
	return name
}

// totalMemory returns the machine's memory in bytes.
func totalMemory(fs procfs.FS) (uint64, error) {
	m, err := fs.Meminfo()
	if err != nil || m.MemTotalBytes == nil {
		return 0, err
	}
	return *m.MemTotalBytes, nil
}

// FormatCPUTime formats like top: minutes, seconds and hundredths.
func FormatCPUTime(d time.Duration) string {
	hundredths := d.Milliseconds() / 10
	return fmt.Sprintf("%d:%02d.%02d", hundredths/6000, hundredths/100%60, hundredths%100)
}
