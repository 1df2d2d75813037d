package attach

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Exchange remembers the programs whose place this process has given to its own, so that they can
// have it back. They stay in the kernel until Keep. The zero value is ready; methods are safe for
// concurrent use.
type Exchange struct {
	mu     sync.Mutex
	places []exchanged
	back   bool // the former ones are in their places
}

// exchanged is where a program took the place of another.
type exchanged struct {
	former, own *ebpf.Program
	put         func(*ebpf.Program) error
}

// At has a program take the place of the one with this id, by put. One of the same code is not
// remembered.
func (e *Exchange) At(former ebpf.ProgramID, own *ebpf.Program, put func(*ebpf.Program) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	own = e.current(own)
	p, err := ebpf.NewProgramFromID(former)
	if err != nil {
		return errors.Join(fmt.Errorf("open the program that is attached: %w", err), put(own)) // nothing to go back to
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

// Current is what is to be attached in place of a program of this process: itself, or the former
// one after Back.
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

// Former are the programs that can come back, each once.
func (e *Exchange) Former() []*ebpf.Program {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []*ebpf.Program
	for _, p := range e.places {
		list = append(list, p.former)
	}
	return list
}

// ErrWatched says that programs of another version may still take the places of those of this
// process.
var ErrWatched = errors.New("the programs have just been exchanged for those of this version, and the former ones may come back: try again in 10 seconds")

// Watched is ErrWatched while former programs may come back.
func (e *Exchange) Watched() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.places) > 0 {
		return ErrWatched
	}
	return nil
}

// Put has a program of this process take the place of another one of it. A place that is gone is no
// error.
func (e *Exchange) Put(p Place, own *ebpf.Program) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := p.Update(e.current(own)); err != nil && !isGone(err) {
		return err
	}
	return nil
}

// Swap puts the former programs back into their places, or those of this process. A place that is
// gone is no error.
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

// isGone tells whether an interface is gone, or was detached.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOLINK) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EBADF)
}

// Keep lets go of the former programs.
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

// SameCode tells whether two programs have the same instructions, but for constants.
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
