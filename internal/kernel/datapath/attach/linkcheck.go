package attach

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/internal/kernel/datapath/pins"
)

// Faults of an attachment by a link, as Check returns them.
var (
	ErrDetached = errors.New("was detached by another program: packets pass without it")
	ErrReplaced = errors.New("runs another program than this daemon's")
	ErrUnpinned = errors.New("is not pinned: it would end with the daemon")
)

// Check describes the fault of an attachment at an interface that runs own, or its replacement;
// nil: none.
func (f LinkFolder) Check(index int, a Attachment, own *ebpf.Program) error {
	l, ok := a.(linkAttachment)
	if !ok {
		return nil
	}
	where, program, err := pins.Attached(l.Link)
	if err != nil {
		return err
	}
	info, err := f.Exchange.Current(own).Info()
	if err != nil {
		return fmt.Errorf("read program: %w", err)
	}
	id, _ := info.ID()
	switch {
	case where != uint32(index):
		return ErrDetached
	case program != id:
		return ErrReplaced
	case l.pinned && !f.pinned(index, l.Link):
		return ErrUnpinned
	}
	return nil
}

// pinned reports whether the pin of the interface is a pin of this link.
func (f LinkFolder) pinned(index int, l link.Link) bool {
	there, err := link.LoadPinnedLink(f.pin(index), nil)
	if err != nil {
		return false
	}
	defer there.Close()
	one, err1 := there.Info()
	two, err2 := l.Info()
	return err1 == nil && err2 == nil && one.ID == two.ID
}

// Repair corrects the findings of Check, except for a detached link, which must be attached again.
func (f LinkFolder) Repair(index int, a Attachment, own *ebpf.Program) error {
	l, ok := a.(linkAttachment)
	if !ok {
		return nil
	}
	if err := l.Update(f.Exchange.Current(own)); err != nil {
		return fmt.Errorf("set the program of a link: %w", err)
	}
	if !l.pinned || f.pinned(index, l.Link) {
		return nil
	}
	info, err := l.Info()
	if err != nil {
		return fmt.Errorf("read link: %w", err)
	}
	again, err := link.NewFromID(info.ID) // the library considers the open one pinned
	if err != nil {
		return fmt.Errorf("open link: %w", err)
	}
	defer again.Close()
	if err := os.Remove(f.pin(index)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a pin of another link: %w", err)
	}
	return errors.Join(f.Make(), again.Pin(f.pin(index)))
}

// Forget closes a link that others have detached, and removes its pin.
func (f LinkFolder) Forget(index int, a Attachment) error {
	if f.Path != "" {
		if err := os.Remove(f.pin(index)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the pin of a detached link: %w", err)
		}
	}
	return a.Close()
}
