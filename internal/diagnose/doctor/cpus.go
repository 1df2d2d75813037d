package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// cpuCount returns the number of online CPUs.
func (m *Machine) cpuCount() (n int) {
	text, _ := m.read("sys/devices/system/cpu/online")
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			continue
		}
		to := from
		if isRange {
			to, _ = strconv.Atoi(last)
		}
		n += to - from + 1
	}
	return n
}

// cards returns the hardware interfaces with the packet path; without a daemon, all hardware
// interfaces that are up.
func (m *Machine) cards() ([]Link, error) {
	links, err := m.Network.Links()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(links, func(l Link) bool {
		return l.Kind != "device" || !l.Up || l.Loopback || m.Facts.Daemon && !slices.Contains(m.Facts.Interfaces, l.Name)
	}), nil
}

// queues checks whether packets are spread over CPUs.
func queues(m *Machine) (out []Finding, err error) {
	cpus := m.cpuCount()
	cards, err := m.cards()
	if err != nil || cpus < 2 {
		return nil, err
	}
	for _, l := range cards {
		rx := 0
		spread := false
		for _, q := range m.list("sys/class/net", l.Name, "queues") {
			if strings.HasPrefix(q, "rx-") {
				rx++
				mask, _ := m.read("sys/class/net", l.Name, "queues", q, "rps_cpus")
				spread = spread || strings.Trim(mask, "0,") != ""
			}
		}
		if rx != 1 || spread {
			continue
		}
		all := strconv.FormatUint(1<<min(cpus, 32)-1, 16)
		path := "sys/class/net/" + l.Name + "/queues/rx-0/rps_cpus"
		out = append(out, Finding{
			About: l.Name, What: fmt.Sprintf("%s has one queue for %d CPUs", l.Name, cpus), Sure: Likely,
			Why: "one CPU handles all packets and limits the machine", Command: fmt.Sprintf("ethtool -L %s combined %d, or: echo %s > /%s", l.Name, cpus, all, path),
			Fix: write{path, all},
		})
	}
	return out, nil
}

// interrupts checks whether a card's queues interrupt different CPUs.
func interrupts(m *Machine) (out []Finding, err error) {
	cpus := m.cpuCount()
	cards, err := m.cards()
	if err != nil || cpus < 2 {
		return nil, err
	}
	for _, l := range cards {
		at := map[string]int{}
		numbers := m.list("sys/class/net", l.Name, "device/msi_irqs")
		known := 0
		for _, n := range numbers {
			if cpu, ok := m.read("proc/irq", n, "effective_affinity_list"); ok && cpu != "" {
				at[cpu]++
				known++
			}
		}
		if known > 2 && len(at) == 1 {
			out = append(out, Finding{
				About: l.Name, What: fmt.Sprintf("all %d interrupts of %s go to one CPU", known, l.Name), Sure: Likely,
				Why: "that CPU handles all packets, regardless of the number of queues", Command: "systemctl start irqbalance, or write a separate CPU into each /proc/irq/N/smp_affinity_list",
			})
		}
	}
	return out, nil
}

// governor checks whether CPUs are kept at their lowest frequency.
func governor(m *Machine) ([]Finding, error) {
	which, ok := m.read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	if !ok || which != "powersave" {
		return nil, nil
	}
	if driver, _ := m.read("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"); strings.HasPrefix(driver, "intel_pstate") || strings.HasPrefix(driver, "amd-pstate-epp") {
		return nil, nil // these drivers raise the frequency with load under this name, too
	}
	return []Finding{{
		About: "cpu0", What: "CPUs run at their lowest frequency: the governor is powersave", Sure: Likely, Why: "each packet takes longer",
		Command: "cpupower frequency-set -g performance",
	}}, nil
}
