package doctor

import (
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeNetwork is a network in memory.
type fakeNetwork struct {
	links      []Link
	neighbours []Neighbour
	routes     map[netip.Addr]Route
	features   map[string]bool
	answers    int        // size of the largest ping that gets an answer; 0: none
	mu         sync.Mutex // pings are sent concurrently
	pings      int        // number of pings sent
	loses      int        // number of pings lost, the first ones
	refuses    error
}

func (n *fakeNetwork) Links() ([]Link, error)           { return n.links, nil }
func (n *fakeNetwork) Neighbours() ([]Neighbour, error) { return n.neighbours, nil }
func (n *fakeNetwork) Route(a netip.Addr) (Route, error) {
	if r, ok := n.routes[a]; ok {
		return r, nil
	}
	return Route{}, errors.New("no route")
}

func (n *fakeNetwork) Ping(_ netip.Addr, sizes ...int) (answered []bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, size := range sizes {
		n.pings++
		answered = append(answered, size <= n.answers && n.pings > n.loses)
	}
	return answered, nil
}

func (n *fakeNetwork) Connect(netip.AddrPort) error { return n.refuses }

func (n *fakeNetwork) Feature(link string, f Feature) (on, known bool) {
	on, known = n.features[link+"/"+f.Name]
	return on, known
}

func (n *fakeNetwork) SetFeature(link string, f Feature, on bool) error {
	n.features[link+"/"+f.Name] = on
	return nil
}

var (
	vip      = netip.MustParseAddr("20.20.20.1")
	endpoint = netip.MustParseAddr("31.31.31.1")
	at5001   = netip.AddrPortFrom(endpoint, 5001)
)

// healthy returns a machine without faults.
func healthy() (files map[string]string, m *Machine) {
	files = map[string]string{
		"proc/sys/kernel/osrelease": "6.8.0", "sys/kernel/btf/vmlinux": "x", "boot/config-6.8.0": "CONFIG_BPF_SYSCALL=y\nCONFIG_BPF_JIT=y\nCONFIG_NET_CLS_ACT=y\nCONFIG_CGROUP_BPF=y",
		"proc/sys/net/core/bpf_jit_enable": "1", "proc/sys/net/core/bpf_jit_harden": "0", "proc/self/mounts": "none /sys/fs/bpf bpf rw 0 0", "proc/sys/kernel/bpf_stats_enabled": "0",
		"proc/sys/net/ipv4/conf/lo/forwarding": "1", "proc/sys/net/ipv6/conf/lo/forwarding": "1", "proc/sys/net/ipv4/conf/all/rp_filter": "2",
		"proc/sys/net/ipv4/conf/eth0/rp_filter":     "0",
		"proc/sys/net/ipv4/conf/all/send_redirects": "0", "proc/sys/net/ipv4/conf/eth0/send_redirects": "0", "proc/sys/net/ipv4/ip_forward": "1",
		"proc/sys/net/ipv4/neigh/default/gc_thresh3": "1024", "proc/net/stat/arp_cache": "entries allocs\n0000000a 1", "proc/self/cgroup": "0::/x",
		"sys/fs/cgroup/x/memory.max": "max", "sys/fs/cgroup/x/memory.current": "1000", "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 900 kB",
		"proc/self/limits": "Max open files            1024                 1024                 files", "proc/sys/net/netfilter/nf_conntrack_count": "1",
		"proc/sys/net/netfilter/nf_conntrack_max": "1000", "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999", "sys/devices/system/cpu/online": "0-3",
		"sys/class/net/eth0/queues/rx-0/rps_cpus": "0", "sys/class/net/eth0/queues/rx-1/rps_cpus": "0", "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
	}
	return files, &Machine{
		Facts: Facts{Daemon: true, VIPs: []netip.Addr{vip}, Endpoints: []Endpoint{{Addr: endpoint}}, Interfaces: []string{"eth0"}},
		Network: &fakeNetwork{
			links:    []Link{{Index: 1, Name: "lo", Up: true, Loopback: true, MTU: 65536, Addrs: []netip.Addr{vip}}, {Index: 2, Name: "eth0", Kind: "device", Up: true, MTU: 1500}},
			routes:   map[netip.Addr]Route{endpoint: {Link: "eth0"}},
			features: map[string]bool{"eth0/gro": true, "eth0/tx": true, "eth0/rx": true, "eth0/lro": false}, answers: 9000,
		},
	}
}

// at writes the files below a root directory of the machine.
func (m *Machine) at(t *testing.T, files map[string]string) {
	t.Helper()
	m.Root = t.TempDir()
	for name, text := range files {
		path := filepath.Join(m.Root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// faults returns machines with one fault each.
func faults() map[string]struct {
	files   map[string]string // replaces files of the healthy machine; empty text: no such file
	edit    func(*Machine, *fakeNetwork)
	id      string
	sure    Certainty
	fixable bool
} {
	type wrong = struct {
		files   map[string]string
		edit    func(*Machine, *fakeNetwork)
		id      string
		sure    Certainty
		fixable bool
	}
	file := func(path, text string) map[string]string { return map[string]string{path: text} }
	return map[string]wrong{
		"old kernel":    {files: file("proc/sys/kernel/osrelease", "5.15.0"), id: "kernel:release", sure: Certain},
		"no types":      {files: file("sys/kernel/btf/vmlinux", ""), id: "kernel:btf", sure: Certain},
		"no cgroup BPF": {files: file("boot/config-6.8.0", "CONFIG_BPF_SYSCALL=y\nCONFIG_BPF_JIT=y\nCONFIG_NET_CLS_ACT=y"), id: "kernel:CONFIG_CGROUP_BPF", sure: Certain},
		"interpreted":   {files: file("proc/sys/net/core/bpf_jit_enable", "0"), id: "jit:enable", sure: Certain, fixable: true},
		"hardened":      {files: file("proc/sys/net/core/bpf_jit_harden", "2"), id: "jit:harden", sure: Likely, fixable: true},
		"no bpffs":      {files: file("proc/self/mounts", "none / ext4 rw 0 0"), id: "bpffs:mount", sure: Certain},
		"statistics":    {files: file("proc/sys/kernel/bpf_stats_enabled", "1"), id: "program-statistics:enabled", sure: Certain, fixable: true},
		"forwarding":    {files: file("proc/sys/net/ipv4/conf/lo/forwarding", "0"), id: "forwarding:ipv4", sure: Certain, fixable: true},
		"strict":        {files: map[string]string{"proc/sys/net/ipv4/conf/all/rp_filter": "0", "proc/sys/net/ipv4/conf/eth0/rp_filter": "1"}, id: "reverse-path:eth0", sure: Possible, fixable: true},
		"redirects":     {files: file("proc/sys/net/ipv4/conf/all/send_redirects", "1"), id: "redirects:eth0", sure: Possible, fixable: true},
		"LRO":           {edit: func(_ *Machine, n *fakeNetwork) { n.features["eth0/lro"] = true }, id: "offloads:eth0/lro", sure: Certain, fixable: true},
		"no GRO":        {edit: func(_ *Machine, n *fakeNetwork) { n.features["eth0/gro"] = false }, id: "offloads:eth0/gro", sure: Likely, fixable: true},
		"tags, no XDP": {edit: func(m *Machine, n *fakeNetwork) {
			n.features["eth0/rxvlan"], m.Facts.HiddenTags = true, []HiddenTags{{"eth0", false}}
		}, id: "vlan-tags:eth0/rxvlan", sure: Certain, fixable: true},
		"tags, XDP": {edit: func(m *Machine, n *fakeNetwork) {
			n.features["eth0/rxvlan"], m.Facts.HiddenTags = true, []HiddenTags{{"eth0", true}}
		}, id: "vlan-tags:eth0/rxvlan", sure: Possible, fixable: true},
		"no classifier":         {edit: func(m *Machine, _ *fakeNetwork) { m.Facts.Mobile.Unclassified = 3 }, id: "mobile:unclassified", sure: Possible},
		"not the user":          {edit: func(m *Machine, _ *fakeNetwork) { m.Facts.Mobile.Forged = 3 }, id: "mobile:forged", sure: Possible},
		"no way to the station": {edit: func(m *Machine, _ *fakeNetwork) { m.Facts.Mobile.Failed = 3 }, id: "mobile:failed", sure: Possible},
		"too many transfers":    {edit: func(m *Machine, _ *fakeNetwork) { m.Facts.FTP.Refused = 3 }, id: "ftp:client", sure: Possible},
		"FTP over TLS":          {edit: func(m *Machine, _ *fakeNetwork) { m.Facts.FTP.TLS = 3 }, id: "ftp:tls", sure: Likely},
		"no room for FTP":       {edit: func(m *Machine, _ *fakeNetwork) { m.Facts.FTP.Rows, m.Facts.FTP.Max = 90, 100 }, id: "ftp:table", sure: Likely},
		"too many clients":      {edit: func(m *Machine, _ *fakeNetwork) { m.Facts.Tables = []Table{{"persists", 90, 100}} }, id: "tables:persists", sure: Likely},
		"too many pairs":        {edit: func(m *Machine, _ *fakeNetwork) { m.Facts.Tables = []Table{{"snat_usages", 90, 100}} }, id: "tables:snat_usages", sure: Likely},
		"BGP": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.BGPSessions = []BGPSession{{Neighbor: "10.0.0.2", Why: "the session is down (Active)"}}
		}, id: "bgp:10.0.0.2", sure: Certain},
		"BFD": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.BFDSessions = []BFDSession{{Key: "10.0.0.2", Why: "no packet from 10.0.0.2 for 300ms"}}
		}, id: "bfd:10.0.0.2", sure: Certain},
		"cluster": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.ClusterPeers = []ClusterPeer{{Node: "lb2", Why: "connection refused"}}
		}, id: "cluster:lb2", sure: Certain},
		"damaged key": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.ClusterProblems = []string{"the key or certificates of the cluster cannot be used"}
		}, id: "cluster:this node", sure: Certain},
		"held back": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.ClusterHeld = "the serving node at 10.0.0.1:22222 refuses this one"
		}, id: "cluster:announcements", sure: Certain},
		"shared store": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.SharedStore = &SharedStore{Servers: "etcd at 10.0.0.9:2379", Err: errors.New("connection refused")}
		}, id: "store:etcd at 10.0.0.9:2379", sure: Certain},
		"entry of the shared store": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.SharedStore = &SharedStore{Entries: []Problem{{About: "service/x", What: "its value is not an object of loxilb", Hint: "etcdctl del /loxilb/service/x"}}}
		}, id: "store:service/x", sure: Certain},
		"two nodes of a name": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.SharedStore = &SharedStore{Servers: "etcd at 10.0.0.9:2379", DuplicateName: "a"}
		}, id: "store:node a", sure: Certain},
		"VIP withdrawn": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.Availability.Hidden = []Withdrawn{{netip.MustParsePrefix("20.20.20.1/32"), "no endpoint takes connections"}}
		}, id: "announcements:20.20.20.1/32", sure: Certain},
		"no BGP neighbor": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.Availability.Unannounced, m.Facts.Availability.Why = 2, "there is no BGP neighbor"
		}, id: "announcements:neighbors", sure: Certain},
		"left drained": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.Availability.Stage, m.Facts.Availability.Since = "drained", time.Now().Add(-2*time.Hour)
		}, id: "maintenance:drained", sure: Likely},
		"just drained": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.Availability.Stage, m.Facts.Availability.Since = "drained", time.Now().Add(-time.Minute)
		}},
		"no lease": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.Availability.Unleased = []Unleased{{netip.MustParseAddr("10.0.0.100"), 5, 4}}
		}, id: "roles:10.0.0.100", sure: Likely},
		"not elected":     {edit: func(m *Machine, _ *fakeNetwork) { m.Facts.Availability.Unelected = []Unelected{{"blue", 2}} }, id: "roles:blue", sure: Likely},
		"no next hop":     {edit: func(m *Machine, _ *fakeNetwork) { m.Facts.Problems = []Problem{{"31.31.31.1", "it is silent", "see"}} }, id: "next-hops:31.31.31.1", sure: Certain},
		"neighbours":      {files: file("proc/net/stat/arp_cache", "entries allocs\n00000400 1"), id: "neighbour-table:ipv4", sure: Certain, fixable: true},
		"many neighbours": {files: file("proc/net/stat/arp_cache", "entries allocs\n000003f0 1"), id: "neighbour-table:ipv4", sure: Likely, fixable: true},
		"narrow path":     {edit: func(_ *Machine, n *fakeNetwork) { n.answers = 1400 }, id: "path-mtu:31.31.31.1", sure: Likely},
		"service drained": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.Unserved = []Unserved{{Service: "20.20.20.1:80/tcp", State: "drained", Endpoints: "2 drained", Drained: true}}
		}, id: "services:20.20.20.1:80/tcp", sure: Certain},
		"object failed": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.Failed = []Problem{{"session user1", "there is no route", "loxicmd get status --failed"}}
		}, id: "objects:session user1", sure: Certain},
		"endpoint down": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.Down = []Down{{at5001, "connection refused"}, {at5001, "3 of 3"}}
		}, id: "endpoints:31.31.31.1:5001", sure: Certain},
		"unprobed, refuses": {edit: func(m *Machine, n *fakeNetwork) {
			m.Facts.Unprobed, n.refuses = []Unprobed{{at5001, 0, 0}}, errors.New("connection refused")
		}, id: "unprobed:31.31.31.1:5001", sure: Likely},
		"unprobed, unheard": {edit: func(m *Machine, _ *fakeNetwork) { m.Facts.Unprobed = []Unprobed{{at5001, 3, 0}} }, id: "unprobed:31.31.31.1:5001", sure: Likely},
		"unprobed, well":    {edit: func(m *Machine, _ *fakeNetwork) { m.Facts.Unprobed = []Unprobed{{at5001, 2, 0}, {at5001, 9, 1}} }},
		"tunnel":            {edit: func(m *Machine, _ *fakeNetwork) { m.Facts.Endpoints[0].Overhead = 20 }, id: "mtu:eth0", sure: Likely},
		"tunnel, MSS": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.Endpoints[0].Overhead, m.Facts.Endpoints[0].MSS, m.Facts.Endpoints[0].Direct = 20, 1000, true
		}, id: "mtu:eth0", sure: Likely},
		"program": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.Programs = []Program{{"eth0", "ingress", "cil_from_netdev", true}, {"eth0", "ingress", "after", false}}
		}, id: "other-programs:eth0/cil_from_netdev", sure: Possible},
		"IPsec": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.IPsec = []IPsecRefusal{{About: "31.31.31.1", RefusesAll: true}}
		}, id: "ipsec:31.31.31.1", sure: Certain},
		"IPsec of some packets": {edit: func(m *Machine, _ *fakeNetwork) {
			m.Facts.IPsec = []IPsecRefusal{{About: "9.9.9.0/24"}, {About: "9.9.9.0/24"}}
		}, id: "ipsec:9.9.9.0/24", sure: Likely},
		"VIP twice": {edit: func(_ *Machine, n *fakeNetwork) { n.links[1].Addrs = []netip.Addr{vip} }, id: "vips:20.20.20.1", sure: Likely},
		"VIP of others": {edit: func(_ *Machine, n *fakeNetwork) {
			n.neighbours = []Neighbour{{Addr: vip, Link: 2, MAC: "02::1", Valid: true}}
		}, id: "vips:20.20.20.1/02::1", sure: Likely},
		"clock":        {edit: func(m *Machine, _ *fakeNetwork) { m.Facts.Started = time.Now().Add(-time.Minute).Round(0) }, id: "", sure: ""},
		"memory limit": {files: map[string]string{"sys/fs/cgroup/x/memory.max": "1000", "sys/fs/cgroup/x/memory.current": "950"}, id: "cgroup:memory", sure: Likely},
		"OOM":          {files: file("sys/fs/cgroup/x/memory.events", "oom 1\noom_kill 2"), id: "cgroup:killed", sure: Certain},
		"throttled":    {files: file("sys/fs/cgroup/x/cpu.stat", "nr_periods 1000\nnr_throttled 500"), id: "cgroup:cpu", sure: Certain},
		"memory":       {files: file("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 10 kB"), id: "memory:available", sure: Likely},
		"descriptors":  {files: map[string]string{"proc/self/limits": "Max open files 1 1 files", "proc/self/fd/0": "x", "proc/self/fd/1": "x"}, id: "descriptors:files", sure: Likely},
		"conntrack":    {files: file("proc/sys/net/netfilter/nf_conntrack_count", "990"), id: "netfilter:conntrack", sure: Likely, fixable: true},
		"ports":        {files: file("proc/sys/net/ipv4/ip_local_port_range", "1024 65535"), id: "ports:range", sure: Likely, fixable: true},
		"one queue":    {files: file("sys/class/net/eth0/queues/rx-1/rps_cpus", ""), id: "queues:eth0", sure: Likely, fixable: true},
		"one CPU": {files: map[string]string{
			"sys/class/net/eth0/device/msi_irqs/30": "x", "sys/class/net/eth0/device/msi_irqs/31": "x", "sys/class/net/eth0/device/msi_irqs/32": "x",
			"proc/irq/30/effective_affinity_list": "0", "proc/irq/31/effective_affinity_list": "0", "proc/irq/32/effective_affinity_list": "0",
		}, id: "interrupts:eth0", sure: Likely},
		"powersave": {files: file("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave"), id: "governor:cpu0", sure: Likely},
	}
}

// TestSmallerSegments checks that if replies bypass this machine, the advice is for the endpoint,
// since only the endpoint can then reduce clients' segments.
func TestSmallerSegments(t *testing.T) {
	t.Parallel()
	_, m := healthy()
	m.Facts.Endpoints[0].Overhead = 28
	for direct, want := range map[bool]string{
		false: "loxicmd create lb ... --mss=1412 (of the services there), or give eth0 an MTU of 1528",
		true:  "on the endpoint: ip route change ROUTE-TO-CLIENTS advmss 1412, or give eth0 an MTU of 1528",
	} {
		m.Facts.Endpoints[0].Direct = direct
		found, err := mtu(m)
		if err != nil || len(found) != 1 || found[0].Command != want {
			t.Errorf("direct %v: %+v, %v, want %q", direct, found, err, want)
		}
	}
}

// TestChecks checks that each check finds its fault and nothing else, that a repaired fault is not
// found again, and that a healthy machine has no findings.
func TestChecks(t *testing.T) {
	t.Parallel()
	cases := faults()
	cases["nothing"] = cases["clock"]
	seen := map[string]bool{}
	for name, c := range cases {
		files, m := healthy()
		maps.Copy(files, c.files)
		maps.DeleteFunc(files, func(_, text string) bool { return text == "" })
		if c.edit != nil && name != "nothing" {
			c.edit(m, m.Network.(*fakeNetwork))
		}
		m.at(t, files)
		findings, made := m.Examine()
		if len(made) != len(checks()) {
			t.Errorf("%s: %d checks were made", name, len(made))
		}
		for _, one := range made {
			if one.Unknown != nil {
				t.Errorf("%s: check %s could not be made: %v", name, one.Name, one.Unknown)
			}
		}
		if c.id == "" {
			if len(findings) > 0 {
				t.Errorf("%s: found %+v", name, findings)
			}
			continue
		}
		if len(findings) != 1 || findings[0].ID() != c.id || findings[0].Sure != c.sure {
			t.Errorf("%s: found %+v, want %s, %s", name, findings, c.id, c.sure)
			continue
		}
		seen[findings[0].Check] = true
		f := findings[0]
		if f.What == "" || f.Why == "" || (f.Command == "" && f.Check != "next-hops") || strings.HasSuffix(f.What, ".") {
			t.Errorf("%s: the finding lacks a summary, a reason or a command: %+v", name, f)
		}
		if !c.fixable {
			continue
		}
		done, err := m.Fix(c.id)
		left, _ := m.Examine()
		if err != nil || len(done) != 1 || len(left) > 0 {
			t.Errorf("%s: fixed %v, %v; left is %+v", name, done, err, left)
		}
	}
	for _, c := range checks() {
		if !seen[c.name] && c.name != "clock" && c.name != "disk" {
			t.Errorf("no case is about %s", c.name)
		}
	}
	if len(clockJump(-3*time.Second)) != 1 || len(clockJump(time.Second)) != 0 || len(unsynchronised(true)) != 1 {
		t.Error("a jumping or unsynchronized clock is not reported, or a good one is")
	}
	full, good := &unix.Statfs_t{Bsize: 1, Bavail: 1 << 20, Blocks: 1 << 30, Ffree: 5, Files: 1000}, &unix.Statfs_t{Bsize: 1, Bavail: 1 << 30, Blocks: 1 << 40}
	if len(diskFindings("/", full)) != 2 || len(diskFindings("/", good)) != 0 {
		t.Error("a full disk is not reported, or a good one is")
	}
	good.Flags = unix.ST_RDONLY
	if list := diskFindings("/", good); len(list) != 1 || list[0].What != "the file system of / is read-only" || list[0].Sure != Certain {
		t.Errorf("got %+v, want that the file system is read-only", list)
	}
}

// TestFitting checks that the largest packet that gets an answer is found, and that neither a
// randomly lost reply nor the lack of any reply counts as a narrow path.
func TestFitting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ answers, loses, size, fits, pings int }{
		{9000, 0, 1500, 1500, 2}, {1400, 0, 1500, 1400, 28}, {1280, 0, 9000, 1280, 34}, {9000, 1, 1500, 1500, 2}, {9000, 2, 1500, 0, 2}, {0, 0, 1500, 0, 2},
	} {
		n := &fakeNetwork{answers: c.answers, loses: c.loses}
		m := &Machine{Network: n}
		if fits, err := m.fitting(endpoint, c.size); err != nil || fits != c.fits || n.pings != c.pings {
			t.Errorf("%+v: %d bytes fit, %v, after %d pings", c, fits, err, n.pings)
		}
	}
}

// TestMachineMount checks that the machine's BPF file system is used if the process's own /sys has
// none, as with ip netns exec.
func TestMachineMount(t *testing.T) {
	t.Parallel()
	files, m := healthy()
	files["proc/self/mounts"], files["proc/2/mounts"] = "lb1 /sys sysfs rw 0 0", "bpf /sys/fs/bpf bpf rw 0 0"
	m.at(t, files)
	if list, err := bpffs(m); err != nil || list != nil {
		t.Errorf("got %v, %+v, want no error, list == nil", err, list)
	}
}

// TestManyDown checks that the first of many endpoints that are down are listed with the result of
// a ping, and that the others are counted.
func TestManyDown(t *testing.T) {
	t.Parallel()
	_, m := healthy()
	for port := range 20 {
		m.Facts.Down = append(m.Facts.Down, Down{netip.AddrPortFrom(endpoint, uint16(5020-port)), "no answer"})
	}
	list, err := endpoints(m)
	if err != nil || len(list) != maxListed+1 || list[0].About != "31.31.31.1:5001" || list[maxListed].What != "12 more endpoints are down" ||
		!strings.Contains(list[0].Why, "it answers ping") {
		t.Errorf("got %v, %+v, want %d findings, the last one with the number of the others", err, list, maxListed+1)
	}
	n := m.Network.(*fakeNetwork)
	m.Facts.Down[19].Evidence = "3 client SYNs refused or undeliverable in 0.2 s; loxilb's own check: connection refused"
	if list, _ = endpoints(m); !strings.Contains(list[0].Why, "nothing listens") {
		t.Errorf(`got %+v, want "nothing listens" in list[0].Why`, list[0])
	}
	for _, d := range m.Facts.Down {
		m.Facts.Unprobed = append(m.Facts.Unprobed, Unprobed{At: d.At})
	}
	n.refuses = errors.New("no")
	if list, _ = unprobed(m); len(list) != maxListed+1 || list[1].About != "31.31.31.1:5002" || list[maxListed].What != "12 more endpoints have the same problem" {
		t.Errorf("got %+v, want %d findings, the last one with the number of the others", list, maxListed+1)
	}
	n.answers, m.Facts.Down = 0, m.Facts.Down[:1]
	if list, _ = endpoints(m); !strings.Contains(list[0].Why, "its machine is off") {
		t.Errorf(`got %+v, want "its machine is off" in list[0].Why`, list)
	}
	n.neighbours = []Neighbour{{Addr: endpoint, Link: 2, MAC: "02::2", Valid: true}}
	if list, _ = endpoints(m); !strings.Contains(list[0].Why, "answers ARP") {
		t.Errorf(`got %+v, want "answers ARP" in list[0].Why`, list)
	}
}

// TestManyBGPSessions checks that the number of findings is bounded.
func TestManyBGPSessions(t *testing.T) {
	t.Parallel()
	_, m := healthy()
	m.Facts.BGPSessions = make([]BGPSession, 10)
	list, err := bgpSessions(m)
	if err != nil || len(list) != maxListed+1 || list[maxListed].What != "2 more BGP sessions are down or lack BFD" {
		t.Errorf("got %+v, %v, want %d findings, the last one with the number of the others", list, err, maxListed+1)
	}
}

// TestUnservedServices checks that the finding says how to fix the service, and that the number of
// findings is bounded.
func TestUnservedServices(t *testing.T) {
	t.Parallel()
	_, m := healthy()
	for range 10 {
		m.Facts.Unserved = append(m.Facts.Unserved, Unserved{Service: "20.20.20.1:80/tcp", State: "down", Endpoints: "2 down"})
	}
	m.Facts.Unserved[1] = Unserved{Service: "a", State: "panic", Endpoints: "2 panic", Receiving: true}
	m.Facts.Unserved[2] = Unserved{Service: "b", State: "drained", Endpoints: "1 drained", Drained: true}
	m.Facts.Unserved[3] = Unserved{Service: "c", State: "down", Endpoints: "2 down", Receiving: true}
	list, err := services(m)
	if err != nil || len(list) != maxListed+1 || list[maxListed].What != "2 more services serve no clients" {
		t.Fatalf("got %+v, %v, want %d findings, the last one with the number of the others", list, err, maxListed+1)
	}
	for i, want := range []string{"refuses all new clients" + "loxicmd describe lb", "are down, so", "loxicmd undrain endpoint", "are down, so"} {
		if got := list[i].Why + list[i].Command; !strings.Contains(got, want) {
			t.Errorf("%+v: no %q", list[i], want)
		}
	}
	if got := list[0].What; got != "service 20.20.20.1:80/tcp is down: 2 down" {
		t.Errorf(`got %v, want "service 20.20.20.1:80/tcp is down: 2 down"`, got)
	}
}

// TestFixUnknown checks that fixing an unknown finding, or one without a safe fix, is an error and
// changes nothing.
func TestFixUnknown(t *testing.T) {
	t.Parallel()
	files, m := healthy()
	files["proc/meminfo"] = "MemTotal: 1000 kB\nMemAvailable: 10 kB"
	m.at(t, files)
	for _, id := range []string{"", "jit:enable", "memory:available", "../../etc/passwd"} {
		if done, err := m.Fix(id); err == nil || done != nil {
			t.Errorf("%q is fixed: %v", id, done)
		}
	}
}
