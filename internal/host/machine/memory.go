package machine

import (
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// MemoryLeft returns how many bytes of memory this process and its BPF maps may still take: the
// machine's available memory, or less if a control group limits it. Beyond that, the kernel kills
// processes.
func MemoryLeft() uint64 { return memoryLeft("/") }

// memoryLeft is MemoryLeft for the files below root.
func memoryLeft(root string) uint64 {
	left := uint64(math.MaxUint64)
	if kilobytes, ok := numberAfter(path.Join(root, "proc/meminfo"), "MemAvailable:"); ok {
		left = kilobytes << 10
	}
	for line := range strings.Lines(readOrEmpty(path.Join(root, "proc/self/cgroup"))) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		switch controllers {
		case "":
			left = min(left, groupsLeft(path.Join(root, "sys/fs/cgroup"), group, "memory.max", "memory.current"))
		case "memory": // version 1
			left = min(left, groupsLeft(path.Join(root, "sys/fs/cgroup/memory"), group, "memory.limit_in_bytes", "memory.usage_in_bytes"))
		}
	}
	return left
}

// groupsLeft returns how many bytes a control group and those above it leave. A container may see
// its own group as the topmost one, by another path.
func groupsLeft(top, group, limit, usage string) uint64 {
	left := uint64(math.MaxUint64)
	for group = path.Join("/", group); ; group = path.Dir(group) {
		dir := path.Join(top, group)
		most, limited := number(path.Join(dir, limit))
		used, known := number(path.Join(dir, usage))
		if limited && known {
			files, _ := numberAfter(path.Join(dir, "memory.stat"), "inactive_file") // the kernel drops these first
			used -= min(used, files)
			left = min(left, most-min(most, used))
		}
		if group == "/" {
			return left
		}
	}
}

// number reads a file with a number; false: it does not exist, or has a word such as max.
func number(file string) (uint64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// numberAfter reads the number after a word at the beginning of a line.
func numberAfter(file, word string) (uint64, bool) {
	for line := range strings.Lines(readOrEmpty(file)) {
		if w := strings.Fields(line); len(w) >= 2 && w[0] == word {
			n, err := strconv.ParseUint(w[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
