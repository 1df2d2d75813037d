package attach

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Exchange records the programs that this process has replaced by its own, so they can be restored.
// They stay in the kernel until Keep. The zero value is ready; methods are safe for concurrent use.
type Exchange struct {
	mu     sync.Mutex
	places []exchanged
	back   bool // the former programs are attached
}

// exchanged is a place where a program was replaced.
type exchanged struct {
	former, own *ebpf.Program
	put         func(*ebpf.Program) error
}

// Replace replaces the program with an id by calling put. A program with the same code is not
// recorded.
func (e *Exchange) Replace(former ebpf.ProgramID, own *ebpf.Program, put func(*ebpf.Program) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	own = e.current(own)
	p, err := ebpf.NewProgramFromID(former)
	if err != nil {
		return errors.Join(fmt.Errorf("open the program that is attached: %w", err), put(own)) // there is no program to restore
	}
	same, err := SameCode(p, own)
	if err != nil || same {
		return errors.Join(err, p.Close(), put(own))
	}
	if err := put(own); err != nil {
		return errors.Join(err, p.Close())
	}
	e.places = append(e.places, exchanged{p, own, put})
	return nil
}

// Current returns the program to attach in place of own: own, or the former program after a
// rollback.
func (e *Exchange) Current(own *ebpf.Program) *ebpf.Program {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.current(own)
}

func (e *Exchange) current(own *ebpf.Program) *ebpf.Program {
	i := slices.IndexFunc(e.places, func(p exchanged) bool { return p.own == own })
	if !e.back || i < 0 {
		return own
	}
	return e.places[i].former
}

// Former returns the programs that can be restored, each once.
func (e *Exchange) Former() []*ebpf.Program {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []*ebpf.Program
	for _, p := range e.places {
		list = append(list, p.former)
	}
	return list
}

// ErrWatched reports that programs of another version may still be restored.
var ErrWatched = errors.New("this version's programs have just replaced the former ones, which may still be restored: try again in 10 seconds")

// Watched returns ErrWatched while former programs may be restored.
func (e *Exchange) Watched() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.places) > 0 {
		return ErrWatched
	}
	return nil
}

// Put replaces one program of this process by another. A missing place is no error.
func (e *Exchange) Put(p Place, own *ebpf.Program) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := p.Update(e.current(own)); err != nil && !isGone(err) {
		return err
	}
	return nil
}

// Swap attaches the former programs (back), or this process's. It ignores missing places.
func (e *Exchange) Swap(back bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.back = back
	var errs []error
	for _, p := range e.places {
		prog := p.own
		if back {
			prog = p.former
		}
		if err := p.put(prog); !isGone(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// isGone reports whether an interface is gone, or was detached.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOLINK) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EBADF)
}

// Keep releases the former programs.
func (e *Exchange) Keep() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, p := range e.places {
		errs = append(errs, p.former.Close())
	}
	e.places = nil
	return errors.Join(errs...)
}

// SameCode reports whether two programs have the same instructions, except for constants.
func SameCode(a, b *ebpf.Program) (bool, error) {
	one, err := a.Info()
	if err != nil {
		return false, fmt.Errorf("read program: %w", err)
	}
	two, err := b.Info()
	if err != nil {
		return false, fmt.Errorf("read program: %w", err)
	}
	return one.Tag == two.Tag, nil
}
