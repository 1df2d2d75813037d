package machine

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMemoryLeft checks what limits of the machine and of control groups leave.
func TestMemoryLeft(t *testing.T) {
	t.Parallel()
	const meminfo = "MemTotal: 2000 kB\nMemAvailable:     1000 kB\n"
	for name, tc := range map[string]struct {
		files map[string]string
		want  uint64
	}{
		"no limit": {map[string]string{"proc/self/cgroup": "0::/system.slice/loxilb.service\n"}, 1000 << 10},
		"its own limit, files do not count": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/loxilb.service\n",
			"sys/fs/cgroup/system.slice/loxilb.service/memory.max":     "900000\n",
			"sys/fs/cgroup/system.slice/loxilb.service/memory.current": "800000\n",
			"sys/fs/cgroup/system.slice/loxilb.service/memory.stat":    "anon 1\ninactive_file 50000\n",
		}, 150_000},
		"one above": {map[string]string{
			"proc/self/cgroup":                                     "0::/system.slice/loxilb.service\n",
			"sys/fs/cgroup/system.slice/memory.max":                "500000\n",
			"sys/fs/cgroup/system.slice/memory.current":            "400000\n",
			"sys/fs/cgroup/system.slice/loxilb.service/memory.max": "max\n",
		}, 100_000},
		"in a container": {map[string]string{
			"proc/self/cgroup":             "0::/../pod\n",
			"sys/fs/cgroup/memory.max":     "500000\n",
			"sys/fs/cgroup/memory.current": "600000\n",
		}, 0},
		"version 1": {map[string]string{
			"proc/self/cgroup": "5:cpu:/\n4:memory:/docker/1\n0::/\n",
			"sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "500000\n",
			"sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes": "100000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":          "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes":          "1000000\n",
		}, 400_000},
	} {
		root := t.TempDir()
		tc.files["proc/meminfo"] = meminfo
		for file, text := range tc.files {
			file = filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if left := memoryLeft(root); left != tc.want {
			t.Errorf("%s: %d bytes are left, want %d", name, left, tc.want)
		}
	}
	if left := MemoryLeft(); left == 0 {
		t.Error("this process has no memory left")
	}
}
