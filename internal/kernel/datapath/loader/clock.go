package loader

import (
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Now returns the packet path's clock, in ticks of the kernel. User space cannot read it, so it
// runs a program of two instructions.
func Now() (uint32, error) { return clock(0) }

// Ticks returns the same clock with all of its bits.
func Ticks() (uint64, error) {
	for {
		high, err := clock(32)
		if err != nil {
			return 0, err
		}
		low, err := clock(0)
		if err != nil {
			return 0, err
		}
		if again, err := clock(32); err != nil || again == high {
			return uint64(high)<<32 | uint64(low), err
		}
	}
}

// clock reads 32 bits of the clock, starting at bit from: the result of a program has 32 bits.
func clock(from int32) (uint32, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.FnJiffies64.Call(), asm.RSh.Imm(asm.R0, from), asm.Return()},
	})
	if err != nil {
		return 0, fmt.Errorf("load a program that reads the clock: %w", err)
	}
	defer p.Close()
	const frame = 14 // the shortest that a program runs on
	now, err := p.Run(&ebpf.RunOptions{Data: make([]byte, frame)})
	if err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return now, nil
}

// A Clock follows the packet path's clock after it has read it once. Its zero value is ready to
// use.
type Clock struct {
	mu    sync.Mutex
	began time.Time // when the packet path's clock was ticks; zero: not read yet
	ticks uint32
}

// Started reports whether the clock was read.
func (c *Clock) Started() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.began.IsZero()
}

// In returns the packet path's clock at a time d from now.
func (c *Clock) In(d time.Duration, s *Settings) (ticks uint32, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began.IsZero() {
		if c.ticks, err = Now(); err != nil {
			return 0, err
		}
		c.began = time.Now()
	}
	return c.ticks + s.Jiffies(time.Since(c.began)+d), nil
}
