package datapath

import (
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
)

// TestSurgeAtBoot checks that no flood is suspected just before jiffies wrap around for the first
// time, 5 minutes after the kernel has started: all SYNs would be challenged. The formula is that
// of surge_is_on.
func TestSurgeAtBoot(t *testing.T) {
	t.Parallel()
	spec, err := bpf.LoadTc()
	if err != nil {
		t.Fatal(err)
	}
	const period = 1024
	for _, name := range []string{"challenge_surge", "foreign_surge"} {
		var s bpf.TcSurge
		if err := spec.Variables[name].Get(&s); err != nil {
			t.Fatal(err)
		}
		for now := uint32(1<<32 - 2*period); now != 2*period; now++ {
			if s.Until-now-1 < period {
				t.Fatalf("%s suspects a flood %d jiffies before they wrap around", name, -now)
			}
		}
	}
}
