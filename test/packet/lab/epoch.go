package lab

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// epochTicks is how long a cached next hop is valid, in ticks of the kernel's clock: 1 <<
// HOP_EPOCH_SHIFT of bpf/table/epoch.h.
const epochTicks = 1 << 13

// KeepNextHops lets connections share cached next hops. Each CPU has its own cache, so the lab's
// thread stays on one CPU until Reset. Next hops are valid for an epoch, of which at least two
// thirds are left on return (22 s at 250 Hz).
func (l *Lab) KeepNextHops() error {
	if err := unix.SchedGetaffinity(0, &l.cpus); err != nil {
		return fmt.Errorf("read the CPUs of the lab: %w", err)
	}
	cpu := 0
	for !l.cpus.IsSet(cpu) {
		cpu++
	}
	var one unix.CPUSet
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("keep the lab on CPU %d: %w", cpu, err)
	}
	return awaitEpoch()
}

// unpinThread lets the lab's thread run on all of its CPUs again.
func (l *Lab) unpinThread() error {
	if l.cpus.Count() == 0 {
		return nil
	}
	defer l.cpus.Zero()
	if err := unix.SchedSetaffinity(0, &l.cpus); err != nil {
		return fmt.Errorf("let the lab run on all CPUs: %w", err)
	}
	return nil
}

func awaitEpoch() error {
	for {
		now, err := Jiffies()
		if err != nil {
			return err
		}
		if now%epochTicks < epochTicks/3 {
			return nil
		}
		time.Sleep(50 * time.Millisecond) // waits for the clock
	}
}

// Jiffies returns the clock of the packet path: the kernel's ticks, the lower 32 bits.
func Jiffies() (uint32, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.FnJiffies64.Call(), asm.Return()},
	})
	if err != nil {
		return 0, fmt.Errorf("load a program that reads the clock: %w", err)
	}
	defer p.Close()
	now, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 64)})
	if err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return now, nil
}
