package machine

import (
	"os"
	"slices"
	"testing"
)

func TestProcesses(t *testing.T) {
	t.Parallel()
	list, err := Processes()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(p Process) bool { return p.PID == os.Getpid() })
	if i < 0 {
		t.Fatal("this process is not among them")
	}
	own := list[i]
	if own.Command == "" || own.User == "" || own.State == "" || own.Virtual < own.Resident || own.Resident == 0 || own.Memory <= 0 || own.Memory > 100 {
		t.Errorf("%+v", own)
	}
	if !slices.IsSortedFunc(list, func(a, b Process) int { return a.PID - b.PID }) {
		t.Error("they are not in the order of their numbers")
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	d, err := Describe()
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	if d.Host != host || d.Kernel == "" || d.Architecture == "" || d.OS == "" || d.Uptime <= 0 || len(d.BootID) != 36 {
		t.Errorf("%+v", d)
	}
}

func TestFileSystems(t *testing.T) {
	t.Parallel()
	list, err := FileSystems()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range list {
		if seen[f.MountedOn] {
			t.Errorf("%s stands twice", f.MountedOn)
		}
		seen[f.MountedOn] = true
		if f.Asked && (f.Size == 0 || f.Used > f.Size || f.UsedPercent() > 100) {
			t.Errorf("%+v", f)
		}
	}
	if !seen["/"] {
		t.Error("/ is not among them")
	}
}
