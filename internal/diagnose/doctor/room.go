package doctor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroup checks the limits of this process.
func cgroup(m *Machine) (out []Finding, err error) {
	text, ok := m.read("proc/self/cgroup")
	if !ok {
		return nil, errors.New("/proc/self/cgroup cannot be read")
	}
	_, path, ok := strings.Cut(text, "0::")
	if !ok {
		return nil, nil // cgroup v1 alone
	}
	path, _, _ = strings.Cut(path, "\n")
	group := "sys/fs/cgroup" + path
	limit, limited := m.number(group, "memory.max")
	used, known := m.number(group, "memory.current")
	if limited && known && limit > 0 && used*10 > limit*9 {
		out = append(out, Finding{
			About: "memory", What: fmt.Sprintf("cgroup %s uses %d of %d MB of memory", path, used>>20, limit>>20), Sure: Likely,
			Why: "the kernel kills the daemon at the limit, which includes BPF maps", Command: fmt.Sprintf("echo %d > /sys/fs/cgroup%s/memory.max", 2*limit, path),
		})
	}
	if killed := m.keyedNumber(group+"/memory.events", "oom_kill"); killed > 0 {
		out = append(out, Finding{
			About: "killed", What: fmt.Sprintf("the kernel killed %d processes of cgroup %s: out of memory", killed, path), Sure: Certain,
			Why: "it might kill the daemon next", Command: "raise its memory limit (systemctl edit loxilb: MemoryMax=)",
		})
	}
	if periods, throttled := m.keyedNumber(group+"/cpu.stat", "nr_periods"), m.keyedNumber(group+"/cpu.stat", "nr_throttled"); periods > 100 && throttled*20 > periods {
		out = append(out, Finding{
			About: "cpu", What: fmt.Sprintf("cgroup %[3]s was throttled in %[1]d of %[2]d periods", throttled, periods, path), Sure: Certain,
			Why: "probes run late, so endpoints appear down", Command: "raise its CPU limit (systemctl edit loxilb: CPUQuota=)",
		})
	}
	return out, nil
}

// keyedNumber returns the number after a key in a file of "key number" lines.
func (m *Machine) keyedNumber(path, word string) int64 {
	text, _ := m.read(path)
	for line := range strings.Lines(text) {
		if w := strings.Fields(line); len(w) >= 2 && strings.TrimSuffix(w[0], ":") == word {
			n, _ := strconv.ParseInt(w[1], 10, 64)
			return n
		}
	}
	return 0
}

func memory(m *Machine) ([]Finding, error) {
	total, available := m.keyedNumber("proc/meminfo", "MemTotal"), m.keyedNumber("proc/meminfo", "MemAvailable")
	if total == 0 {
		return nil, errors.New("/proc/meminfo cannot be read")
	}
	if available*20 >= total {
		return nil, nil
	}
	return []Finding{{
		About: "available", What: fmt.Sprintf("only %d of %d MB of memory are available", available>>10, total>>10), Sure: Likely,
		Why: "the connection table cannot grow, and the kernel might kill the daemon", Command: "ps -eo rss,comm --sort=-rss | head",
	}}, nil
}

// descriptors checks whether this process may open more files.
func descriptors(m *Machine) ([]Finding, error) {
	limits, ok := m.read("proc/self/limits")
	if !ok {
		return nil, errors.New("/proc/self/limits cannot be read")
	}
	for line := range strings.Lines(limits) {
		rest, is := strings.CutPrefix(line, "Max open files")
		words := strings.Fields(rest)
		if !is || len(words) == 0 {
			continue
		}
		limit, err := strconv.Atoi(words[0])
		if open := len(m.list("proc/self/fd")); err == nil && open*10 > limit*8 {
			return []Finding{{
				About: "files", What: fmt.Sprintf("%d files are open, the limit is %d", open, limit), Sure: Likely,
				Why: "connections to the API are refused, and probes fail", Command: "systemctl edit loxilb: LimitNOFILE=1048576",
			}}, nil
		}
	}
	return nil, nil
}

// disk checks whether the journal's file system has space and is writable.
func disk(m *Machine) ([]Finding, error) {
	if m.Facts.StateDir == "" {
		return nil, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(m.Facts.StateDir, &st); err != nil {
		return nil, fmt.Errorf("inspect %s: %w", m.Facts.StateDir, err)
	}
	return diskFindings(m.Facts.StateDir, &st), nil
}

// diskFindings reports a read-only file system, as after an error of the disk, and one with less
// than 64 MB, the size of some thousand revisions.
func diskFindings(dir string, st *unix.Statfs_t) (out []Finding) {
	const enough = 64 << 20
	if st.Flags&unix.ST_RDONLY != 0 {
		out = append(out, Finding{
			About: "read-only", What: "the file system of " + dir + " is read-only", Sure: Certain,
			Why:     "changes are refused, and loxilb cannot start again",
			Command: "dmesg (an error of the disk?), then: mount -o remount,rw MOUNTPOINT",
		})
	}
	if free := st.Bavail * uint64(st.Bsize); free < enough && st.Blocks > 0 {
		out = append(out, Finding{
			About: "space", What: fmt.Sprintf("only %d MB are free on the file system of %s", free>>20, dir), Sure: Likely,
			Why: "changes are refused when they cannot be written to the journal", Command: "df -h " + dir,
		})
	}
	if st.Files > 0 && st.Ffree < 100 {
		out = append(out, Finding{
			About: "nodes", What: fmt.Sprintf("only %d free inodes remain on the file system of %s", st.Ffree, dir), Sure: Likely,
			Why: "changes are refused when they cannot be written to the journal", Command: "df -i " + dir,
		})
	}
	return out
}
