package main

import (
	"bufio"
	"fmt"
	"math/big"
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

// machine describes the machine, on which results depend.
type machine struct {
	Date        string            `json:"date"`
	CPU         string            `json:"cpu"`
	CPUs        int               `json:"cpus"`
	Memory      string            `json:"memory"`
	Virtual     bool              `json:"virtual"`
	Kernel      string            `json:"kernel"`
	Mitigations []string          `json:"mitigations"` // enabled ones
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

// mitigations returns the kernel's state of each CPU vulnerability, such as "Vulnerable".
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

// versions returns the version of each program. Missing programs are left out.
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

// offloads returns an interface's offloads that decide the size of packets on their path.
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

// readFile returns a file's content, or "" if it is unreadable.
func readFile(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// listening reports whether a table in the format of /proc/net/tcp has a listening socket (state
// 0A) on a port.
func listening(table string, port int) bool {
	suffix := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > 3 && f[3] == "0A" && strings.HasSuffix(f[1], suffix) {
			return true
		}
	}
	return false
}

// layout assigns CPUs to the parts of a rig. In the layout "one" all parts use all CPUs, as on one
// machine. In "pinned" each part has its own, similar to separate machines.
type layout struct {
	client, lb, endpoints []int // empty: all
	steered               bool  // receive packet steering is on
}

// oneCPU runs all parts on one CPU.
func oneCPU() layout { return layout{client: []int{0}, lb: []int{0}, endpoints: []int{0}} }

// layoutNamed divides n CPUs. With two CPUs, the client and the endpoints share one, since
// only the balancer is measured.
func layoutNamed(name string, n int) (layout, error) {
	switch {
	case name == "one":
		return layout{}, nil
	case name != "pinned":
		return layout{}, fmt.Errorf("layout %q is unknown (allowed: one, pinned)", name)
	case n < 2:
		return layout{}, fmt.Errorf("layout pinned needs 2 CPUs, not %d", n)
	case n == 2:
		return layout{client: []int{0}, endpoints: []int{0}, lb: []int{1}, steered: true}, nil
	}
	third := max(n/3, 1)
	l := layout{steered: true}
	for cpu := range n {
		switch {
		case cpu < third:
			l.client = append(l.client, cpu)
		case cpu < 2*third:
			l.lb = append(l.lb, cpu)
		default:
			l.endpoints = append(l.endpoints, cpu)
		}
	}
	return l, nil
}

// cpusOf returns the CPUs of a host's programs.
func (l layout) cpusOf(r *rig, h *netnstest.Host) []int {
	switch h {
	case r.LB:
		return l.lb
	case r.Client:
		return l.client
	}
	return l.endpoints
}

// steer makes each host's CPUs handle its packets. A veth delivers a packet on the sender's CPU;
// receive packet steering moves it to the receiver's, like the interrupt of a network card.
func (l layout) steer(r *rig) error {
	if !l.steered {
		return nil
	}
	steer := func(h *netnstest.Host, name string) error {
		file := "/sys/class/net/" + name + "/queues/rx-0/rps_cpus"
		return writeSysfs(h, file, cpuMask(l.cpusOf(r, h)))
	}
	for _, h := range append(r.Endpoints[:], r.Client) {
		if err := steer(h, "eth0"); err != nil {
			return err
		}
		if err := steer(r.LB, h.Name); err != nil {
			return err
		}
	}
	return nil
}

// writeSysfs writes a file of a host's /sys, which must be mounted for its network namespace.
func writeSysfs(h *netnstest.Host, file, value string) error {
	_, err := h.Run("ip", "netns", "exec", h.Namespace, "sh", "-c", "echo "+value+" >"+file)
	return err
}

func cpuList(cpus []int) string {
	var out []string
	for _, c := range cpus {
		out = append(out, strconv.Itoa(c))
	}
	return strings.Join(out, ",")
}

// cpuMask formats a set of CPUs for the kernel: 32-bit words in hexadecimal, separated by commas.
func cpuMask(cpus []int) string {
	set := new(big.Int)
	for _, c := range cpus {
		set.SetBit(set, c, 1)
	}
	hex := set.Text(16)
	var words []string
	for len(hex) > 8 {
		words = append([]string{hex[len(hex)-8:]}, words...)
		hex = hex[:len(hex)-8]
	}
	return strings.Join(append([]string{hex}, words...), ",")
}
