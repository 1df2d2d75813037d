// Package mapmemory measures the kernel memory of a process's BPF maps, for tests and benchmarks.
package mapmemory

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
)

// OfProcess returns the bytes that the maps of a process use in the kernel, including maps in its
// arrays of maps. Each map counts once; maps that disappear meanwhile do not count.
func OfProcess(pid int) (sum int) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return 0
	}
	seen := map[ebpf.MapID]bool{}
	for _, f := range files {
		m, ok := read(f)
		if !ok || seen[m.id] {
			continue
		}
		seen[m.id] = true
		sum += m.size
		if m.kind == ebpf.ArrayOfMaps {
			sum += sizeOfInner(m.id, seen)
		}
	}
	return sum
}

// openMap is the kernel's description of an open map.
type openMap struct {
	id   ebpf.MapID
	kind ebpf.MapType
	size int
}

// read reads an fdinfo. It returns false if the file is not a map, or was closed meanwhile.
func read(fdinfo string) (m openMap, ok bool) {
	text, err := os.ReadFile(fdinfo)
	if err != nil {
		return m, false
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		n, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil {
			continue
		}
		switch name {
		case "map_id":
			m.id, ok = ebpf.MapID(n), true
		case "map_type":
			m.kind = ebpf.MapType(n)
		case "memlock":
			m.size = n
		}
	}
	return m, ok
}

// sizeOfInner returns the bytes of the maps in an array of maps that were not counted before.
func sizeOfInner(outer ebpf.MapID, seen map[ebpf.MapID]bool) (sum int) {
	m, err := ebpf.NewMapFromID(outer)
	if err != nil {
		return 0
	}
	defer func() { _ = m.Close() }()
	for i := range m.MaxEntries() {
		var id ebpf.MapID
		if m.Lookup(i, &id) != nil {
			break // they are made in order
		}
		if !seen[id] {
			seen[id] = true
			sum += sizeOf(id)
		}
	}
	return sum
}

func sizeOf(id ebpf.MapID) int {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return 0
	}
	defer func() { _ = m.Close() }()
	own, _ := read(fmt.Sprintf("/proc/self/fdinfo/%d", m.FD()))
	return own.size
}
