package diagnose

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// machineParts returns the machine's parts: files of the kernel, and the output of installed
// programs.
func machineParts() []archivePart {
	list := []archivePart{
		{Name: "machine/kernel.txt", What: "the kernel, its limits and load",
			Collect: files("/proc/version", "/proc/cmdline", "/proc/loadavg", "/proc/uptime", "/proc/meminfo", "/proc/cpuinfo", "/proc/pressure/cpu", "/proc/pressure/memory")},
		{Name: "machine/system.txt", What: "the distribution", Collect: files("/etc/os-release")},
		{Name: "machine/sysctl.txt", What: "settings of the kernel's network", Collect: settings},
		{Name: "machine/cgroup.txt", What: "limits and usage of the daemon's cgroup", Collect: cgroup},
		{Name: "network/statistics.txt", What: "counters of protocols and softirqs",
			Collect: files("/proc/net/snmp", "/proc/net/netstat", "/proc/net/softnet_stat", "/proc/softirqs", "/proc/interrupts", "/proc/net/dev")},
		{Name: "bpf/programs.txt", What: "BPF programs and maps of the daemon: what the kernel reports about each, with the verifier's work", Collect: descriptors},
		{Name: "bpf/pins.txt", What: "pinned maps and links", Collect: pinned},
	}
	for _, c := range []struct{ name, what, line string }{
		{"network/links.txt", "interfaces", "ip -s -d link"},
		{"network/addresses.txt", "addresses", "ip addr"},
		{"network/routes.txt", "routes", "ip route show table all"},
		{"network/routes6.txt", "IPv6 routes", "ip -6 route show table all"},
		{"network/rules.txt", "routing rules", "ip rule"},
		{"network/neighbours.txt", "neighbours", "ip neigh"},
		{"network/qdiscs.txt", "queueing disciplines", "tc -s qdisc"},
		{"network/netfilter.txt", "the kernel's own firewall", "nft list ruleset"},
		{"bpf/net.txt", "programs at interfaces, in their order", "bpftool net"},
	} {
		list = append(list, archivePart{
			Name: c.name, What: c.what, Clients: c.name == "network/neighbours.txt" || c.name == "network/netfilter.txt", Collect: command(strings.Fields(c.line)),
		})
	}
	return list
}

// files concatenates files. Missing ones are left out.
func files(paths ...string) func(context.Context) ([]byte, error) {
	return func(context.Context) (out []byte, _ error) {
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				continue
			}
			out = fmt.Appendf(out, "== %s\n%s\n", path, text)
		}
		if out == nil {
			return nil, errors.New("cannot read any of its files")
		}
		return out, nil
	}
}

// command returns the output of a program.
func command(words []string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		path, err := exec.LookPath(words[0])
		if err != nil {
			return nil, fmt.Errorf("program %q not found", words[0])
		}
		cmd := exec.CommandContext(ctx, path, words[1:]...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
		return cmd.CombinedOutput()
	}
}

// settings returns the settings below /proc/sys/net and some others.
func settings(ctx context.Context) (out []byte, _ error) {
	for _, root := range []string{"/proc/sys/net", "/proc/sys/kernel/bpf_stats_enabled", "/proc/sys/kernel/unprivileged_bpf_disabled", "/proc/sys/fs/file-nr"} {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || ctx.Err() != nil || d.IsDir() || strings.Contains(path, "stable_secret") || strings.Contains(path, "fastopen_key") {
				return nil //nolint:nilerr // unreadable files are left out
			}
			if info, err := d.Info(); err != nil || info.Mode()&0o444 == 0 {
				return nil //nolint:nilerr // unreadable files are left out
			}
			if text, err := os.ReadFile(path); err == nil {
				out = fmt.Appendf(out, "%s = %s\n", strings.ReplaceAll(strings.TrimPrefix(path, "/proc/sys/"), "/", "."), strings.TrimSpace(string(text)))
			}
			return nil
		})
	}
	return out, nil
}

// daemons returns the processes called loxilb in this network namespace.
func daemons() (ids []string) {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil
	}
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range paths {
		comm, _ := os.ReadFile(path + "/comm")
		if ns, err := os.Readlink(path + "/ns/net"); err == nil && ns == own && strings.TrimSpace(string(comm)) == "loxilb" {
			ids = append(ids, filepath.Base(path))
		}
	}
	return ids
}

// errNoDaemon is why parts about the daemon are missing.
var errNoDaemon = errors.New("no loxilb process in this network namespace")

// descriptors returns the kernel's description of the BPF objects that the daemon holds.
func descriptors(context.Context) (out []byte, _ error) {
	list := daemons()
	if len(list) == 0 {
		return nil, errNoDaemon
	}
	for _, id := range list {
		entries, err := os.ReadDir("/proc/" + id + "/fdinfo")
		if err != nil {
			return out, err
		}
		var texts []string
		for _, e := range entries {
			text, err := os.ReadFile("/proc/" + id + "/fdinfo/" + e.Name())
			if s := string(text); err == nil && (strings.Contains(s, "prog_id:") || strings.Contains(s, "map_id:") || strings.Contains(s, "link_id:")) {
				texts = append(texts, strings.Join(strings.Fields(s), " "))
			}
		}
		slices.Sort(texts)
		out = fmt.Appendf(out, "== process %s\n%s\n", id, strings.Join(slices.Compact(texts), "\n"))
	}
	return out, nil
}

func pinned(context.Context) (out []byte, err error) {
	err = filepath.WalkDir("/sys/fs/bpf", func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			out = append(out, path+"\n"...)
		}
		return nil //nolint:nilerr // unreadable files are left out
	})
	return out, err
}

// cgroup returns the files of limits and usage.
func cgroup(ctx context.Context) (out []byte, _ error) {
	list := daemons()
	if len(list) == 0 {
		return nil, errNoDaemon
	}
	for _, id := range list {
		text, err := os.ReadFile("/proc/" + id + "/cgroup")
		if err != nil {
			return out, err
		}
		_, path, _ := strings.Cut(strings.TrimSpace(string(text)), "0::")
		dir := filepath.Join("/sys/fs/cgroup", path)
		body, _ := files(dir+"/memory.max", dir+"/memory.current", dir+"/memory.events", dir+"/cpu.max", dir+"/cpu.stat", dir+"/pids.max", "/proc/"+id+"/limits", "/proc/"+id+"/status")(ctx)
		out = append(out, body...)
	}
	return out, nil
}
