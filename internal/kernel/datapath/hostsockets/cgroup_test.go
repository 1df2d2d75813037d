package hostsockets

import (
	"os"
	"strings"
	"testing"
)

// TestCgroupRoot checks that a folder of cgroup v2 is found below the mount point of either
// version, and that others are refused by name.
func TestCgroupRoot(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/sys/fs/cgroup/unified"); err == nil {
		f, err := cgroupRoot("/sys/fs/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Name() != "/sys/fs/cgroup/unified" {
			t.Errorf("the folder of cgroup v2 is %s", f.Name())
		}
	}
	for path, want := range map[string]string{t.TempDir(): "is not of cgroup v2", "/no/such": "no such file"} {
		if _, err := cgroupRoot(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("cgroupRoot(%q): %v, want %q", path, err, want)
		}
	}
}
