package doctor

import (
	"errors"
	"fmt"
	"strings"
)

// kernel checks whether the kernel can run the data path.
func kernel(m *Machine) (out []Finding, err error) {
	release, ok := m.read("proc/sys/kernel/osrelease")
	if !ok {
		return nil, errors.New("/proc/sys/kernel/osrelease cannot be read")
	}
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return nil, fmt.Errorf("the kernel's release is %q", release)
	}
	if major < 6 || major == 6 && minor < 1 {
		out = append(out, Finding{
			About: "release", What: "the kernel is " + release, Sure: Certain, Why: "the data path is not loaded: it needs Linux 6.1 or newer", Command: "boot Linux 6.1 or newer",
		})
	}
	if _, ok := m.read("sys/kernel/btf/vmlinux"); !ok {
		out = append(out, Finding{
			About: "btf", What: "the kernel has no BTF type information: /sys/kernel/btf/vmlinux is missing", Sure: Certain,
			Why: "the data path is not loaded: it needs the kernel's types", Command: "boot a kernel with CONFIG_DEBUG_INFO_BTF=y",
		})
	}
	return append(out, missingOptions(m, release)...), nil
}

// missingOptions returns missing options of the kernel's configuration, if that is readable.
func missingOptions(m *Machine, release string) (out []Finding) {
	config, ok := m.read("boot", "config-"+release)
	if !ok {
		return nil
	}
	for option, why := range map[string]string{
		"CONFIG_BPF_SYSCALL": "the data path cannot run without it", "CONFIG_BPF_JIT": "programs are interpreted, about ten times slower",
		"CONFIG_NET_CLS_ACT": "programs cannot be attached to interfaces", "CONFIG_CGROUP_BPF": "this machine's own sockets cannot reach VIPs",
	} {
		if !strings.Contains("\n"+config+"\n", "\n"+option+"=y\n") {
			out = append(out, Finding{
				About: option, What: "the kernel is built without " + option, Sure: Certain, Why: why, Command: "boot a kernel that is built with it",
			})
		}
	}
	return out
}

// jit checks whether the kernel compiles BPF programs, and at what cost.
func jit(m *Machine) (out []Finding, err error) {
	if on, ok := m.setting("net/core/bpf_jit_enable"); ok && on == 0 {
		f := Finding{About: "enable", What: "BPF programs are interpreted: net.core.bpf_jit_enable is 0", Sure: Certain, Why: "each packet takes about ten times as long"}
		f.Command, f.Fix = sysctl("net/core/bpf_jit_enable", "1")
		out = append(out, f)
	}
	if level, ok := m.setting("net/core/bpf_jit_harden"); ok && level == 2 {
		f := Finding{
			About: "harden", What: "constants are blinded in root's BPF programs too: net.core.bpf_jit_harden is 2", Sure: Likely,
			Why: "packets take a few percent longer; 1 blinds only programs of other users",
		}
		f.Command, f.Fix = sysctl("net/core/bpf_jit_harden", "1")
		f.Command += "; it applies to programs loaded afterwards"
		out = append(out, f)
	}
	return out, nil
}

// bpffs checks whether a BPF file system is mounted, in this process's mount namespace or the
// host's: ip netns exec mounts a /sys without one.
func bpffs(m *Machine) ([]Finding, error) {
	mounts, ok := m.read("proc/self/mounts")
	if !ok {
		return nil, errors.New("/proc/self/mounts cannot be read")
	}
	for _, process := range []string{"1", "2"} { // 1 is init, or the container's first process; 2 is kthreadd, in the host's mount namespace
		others, _ := m.read("proc", process, "mounts")
		mounts += "\n" + others
	}
	for line := range strings.Lines(mounts) {
		if w := strings.Fields(line); len(w) > 2 && w[2] == "bpf" {
			return nil, nil
		}
	}
	return []Finding{{
		About: "mount", What: "no BPF file system is mounted", Sure: Certain, Why: "maps and links cannot be pinned, so connections end with the daemon",
		Command: "mount -t bpf bpf /sys/fs/bpf", Fix: mount{},
	}}, nil
}

// statistics checks whether the kernel times each run of a program.
func statistics(m *Machine) ([]Finding, error) {
	if on, ok := m.setting("kernel/bpf_stats_enabled"); !ok || on == 0 {
		return nil, nil
	}
	f := Finding{About: "enabled", What: "the kernel measures the run time of BPF programs: kernel.bpf_stats_enabled is 1", Sure: Certain, Why: "each packet costs two clock readings, about 50 ns"}
	f.Command, f.Fix = sysctl("kernel/bpf_stats_enabled", "0")
	return []Finding{f}, nil
}
