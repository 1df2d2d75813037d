package machine

import (
	"os"
	"slices"
	"testing"
	"time"
)

func TestProcesses(t *testing.T) {
	t.Parallel()
	list, err := Processes()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(p Process) bool { return p.PID == os.Getpid() })
	if i < 0 {
		t.Fatal("this process is missing")
	}
	own := list[i]
	if own.Command == "" || own.User == "" || own.State == "" || own.Virtual < own.Resident || own.Resident == 0 || own.Memory <= 0 || own.Memory > 100 {
		t.Errorf("got %+v, want own.Command not empty, own.User not empty, own.State not empty, "+
			"own.Virtual >= own.Resident, own.Resident != 0, own.Memory > 0, own.Memory <= 100",
			own)
	}
	if !slices.IsSortedFunc(list, func(a, b Process) int { return a.PID - b.PID }) {
		t.Error("the processes are not in the order of their numbers")
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
		t.Errorf("got %+v, want every field filled in", d)
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
			t.Errorf("%s is listed twice", f.MountedOn)
		}
		seen[f.MountedOn] = true
		if f.HasSizes && (f.Size == 0 || f.Used > f.Size || f.UsedPercent() > 100) {
			t.Errorf("got %+v, want a size of at least what is used, and at most 100 %%", f)
		}
	}
	if !seen["/"] {
		t.Error("/ is missing")
	}
}

func TestUse(t *testing.T) {
	t.Parallel()
	now, err := CPUTimes()
	if busy, ok := now.BusySince(CPUTime{}); err != nil || !ok || busy < 0 || busy > 100 {
		t.Errorf("%+v: got %v %v, %v, want no error, ok, busy >= 0, busy <= 100", now, busy, ok, err)
	}
	for _, tc := range []struct {
		now, before CPUTime
		busy        float64
		ok          bool
	}{
		{CPUTime{Idle: 150, Total: 400}, CPUTime{Idle: 100, Total: 200}, 75, true},
		{CPUTime{Idle: 100, Total: 200}, CPUTime{Idle: 100, Total: 200}, 0, false},
		{CPUTime{Idle: 90, Total: 300}, CPUTime{Idle: 100, Total: 200}, 0, false}, // a CPU was removed
		{CPUTime{Idle: 10, Total: 20}, CPUTime{Idle: 100, Total: 200}, 0, false},
	} {
		if busy, ok := tc.now.BusySince(tc.before); busy != tc.busy || ok != tc.ok {
			t.Errorf("%+v since %+v: %v, %v", tc.now, tc.before, busy, ok)
		}
	}
	if used, err := MemoryUsed(); err != nil || used <= 0 || used >= 100 {
		t.Errorf("memory: %v, %v", used, err)
	}
	if used, err := DiskUsed("/"); err != nil || used < 0 || used > 100 {
		t.Errorf("disk: %v, %v", used, err)
	}
	if _, err := DiskUsed("/nowhere"); err == nil {
		t.Error("a missing path has a size")
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[uint64]string{0: "0", 1023: "1023", 1024: "1.0K", 10 << 10: "10K", 1536 << 20: "1.5G", 1 << 62: "4.0E", ^uint64(0): "16E"} {
		if got := FormatSize(bytes); got != want {
			t.Errorf("%d is %s, want %s", bytes, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0:00.00", 61230 * time.Millisecond: "1:01.23", 100 * time.Hour: "6000:00.00"} {
		if got := FormatCPUTime(d); got != want {
			t.Errorf("%s is %s, want %s", d, got, want)
		}
	}
}
