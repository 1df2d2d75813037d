package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/test/netnstest"
)

// machine is what numbers depend on besides the contenders.
type machine struct {
	Date        string            `json:"date"`
	CPU         string            `json:"cpu"`
	CPUs        int               `json:"cpus"`
	Memory      string            `json:"memory"`
	Virtual     bool              `json:"virtual"`
	Kernel      string            `json:"kernel"`
	Mitigations []string          `json:"mitigations"` // those that are on
	Offloads    string            `json:"offloads"`    // of the client's interface
	Commit      string            `json:"commit"`
	Versions    map[string]string `json:"versions"`
	Load        string            `json:"load"` // load average at the start
	Clock       string            `json:"clock,omitempty"`
}

func describeMachine(commit, clock string) machine {
	m := machine{
		Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), CPUs: runtime.NumCPU(),
		Commit: commit, Clock: clock, Versions: versions(),
	}
	cpuinfo := readFile("/proc/cpuinfo")
	m.CPU = field(cpuinfo, "model name")
	m.Virtual = slices.Contains(strings.Fields(field(cpuinfo, "flags")), "hypervisor")
	m.Memory = field(readFile("/proc/meminfo"), "MemTotal")
	if kb, err := strconv.Atoi(strings.TrimSuffix(m.Memory, " kB")); err == nil {
		m.Memory = fmt.Sprintf("%.0f GB", float64(kb)/1e6)
	}
	m.Load = strings.Join(strings.Fields(readFile("/proc/loadavg"))[:3], " ")
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		preempt := regexp.MustCompile(`PREEMPT\w*`).FindString(unix.ByteSliceToString(u.Version[:]))
		m.Kernel = strings.TrimSpace(unix.ByteSliceToString(u.Release[:]) + " " + preempt)
	}
	m.Mitigations = mitigations("/sys/devices/system/cpu/vulnerabilities")
	return m
}

// mitigations returns the kernel's defences that are on, and the weaknesses that it has none for.
func mitigations(dir string) (out []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		state := strings.TrimSpace(readFile(filepath.Join(dir, e.Name())))
		if state != "Not affected" && state != "" {
			out = append(out, e.Name()+": "+state)
		}
	}
	return out
}

// versions asks each program for its version; those that are not there are left out.
func versions() map[string]string {
	out := map[string]string{"go": runtime.Version()}
	number := regexp.MustCompile(`\d+\.\d+[\w.+~-]*`)
	for name, args := range map[string][]string{
		"haproxy": {"-v"}, "nginx": {"-v"}, "nft": {"--version"}, "wrk": {"-v"}, "iperf3": {"--version"}, "qperf": {"--version"}, "ipvsadm": {"--version"},
	} {
		b, _ := exec.Command(name, args...).CombinedOutput() // wrk -v fails
		if v := number.FindString(string(b)); v != "" {
			out[name] = v
		}
	}
	return out
}

// offloads returns those of a host's interface that decide how large packets are on their way.
func offloads(h *netnstest.Host, name string) string {
	text, err := h.Run("ethtool", "-k", name)
	if err != nil {
		return "unknown"
	}
	var out []string
	for _, f := range [][2]string{
		{"rx-checksumming", "rx"}, {"tx-checksumming", "tx"}, {"tcp-segmentation-offload", "tso"},
		{"generic-segmentation-offload", "gso"}, {"generic-receive-offload", "gro"},
	} {
		state, _, _ := strings.Cut(field(text, f[0]), " ")
		out = append(out, f[1]+" "+state)
	}
	return strings.Join(out, ", ")
}

// field returns the value of the first "name: value" line.
func field(text, name string) string {
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// readFile returns a file's content, or nothing.
func readFile(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}
