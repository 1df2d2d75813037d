package loader

import (
	"cmp"
	"slices"
	"time"

	"github.com/cilium/ebpf"
)

// Use is what a program has been used. Runs and Time are counted while kernel.bpf_stats_enabled is
// 1.
type Use struct {
	Name         string
	Instructions uint64 // that the verifier has looked at; 0: the kernel does not tell
	Runs         uint64
	Time         time.Duration
}

// Uses are those of the programs for the tc hooks, by name. What the kernel does not tell is 0.
func (c *Collection) Uses() []Use {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]Use, 0, len(c.programs))
	for name, p := range c.programs {
		list = append(list, use(name, p))
	}
	slices.SortFunc(list, func(a, b Use) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func use(name string, p *ebpf.Program) Use {
	u := Use{Name: name}
	if info, err := p.Info(); err == nil {
		n, _ := info.VerifiedInstructions()
		u.Instructions = uint64(n)
	}
	if s, err := p.Stats(); err == nil {
		u.Runs, u.Time = s.RunCount, s.Runtime
	}
	return u
}
