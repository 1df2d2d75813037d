package attach

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/internal/kernel/datapath/pins"
)

// Attachment is a program at an interface's hook. Close leaves it there if it is pinned.
type Attachment interface {
	Detach() error
	Close() error
}

// Place is an attachment whose program may be exchanged while packets flow.
type Place interface {
	Attachment
	Update(*ebpf.Program) error
}

// Release closes an attachment: if it is pinned it continues to work, otherwise it is detached.
func Release(a Attachment, pinned bool) error {
	if pinned {
		return a.Close()
	}
	return Remove(a)
}

// Remove detaches permanently. It may be retried after an error.
func Remove(a Attachment) error {
	if err := a.Detach(); err != nil {
		return err
	}
	return a.Close()
}

// Unpinned is an attachment by a link that ends with the process.
func Unpinned(l link.Link) Attachment { return linkAttachment{Link: l} }

// linkAttachment is an attachment by a link.
type linkAttachment struct {
	link.Link
	pinned bool
}

// Detach detaches the program immediately; unpinning alone would wait for the last file descriptor.
func (a linkAttachment) Detach() error {
	if a.pinned {
		if err := a.Unpin(); err != nil {
			return err
		}
	}
	return a.Link.Detach()
}

// LinkFolder has the links of one hook, pinned by the index of their interface. Path empty: nothing
// is pinned.
type LinkFolder struct {
	Path     string
	Log      *slog.Logger
	Exchange *Exchange
}

// Make makes the folder, if links are pinned.
func (f LinkFolder) Make() error {
	if f.Path == "" {
		return nil
	}
	if err := os.MkdirAll(f.Path, 0o700); err != nil {
		return fmt.Errorf("make pin folder: %w", err)
	}
	return nil
}

// Attach updates the program of the interface's pinned link, or calls attach to make one.
func (f LinkFolder) Attach(index int, prog *ebpf.Program, attach func(*ebpf.Program) (link.Link, error)) (Place, error) {
	if f.Path == "" {
		l, err := attach(prog)
		return linkAttachment{Link: l}, err
	}
	l, err := f.adopt(index, prog)
	if err != nil {
		return nil, err
	}
	if l != nil {
		return linkAttachment{l, true}, nil
	}
	l, err = attach(f.Exchange.Current(prog))
	if err != nil {
		return nil, err
	}
	if err := l.Pin(f.pin(index)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return linkAttachment{l, true}, nil
}

func (f LinkFolder) pin(index int) string { return filepath.Join(f.Path, strconv.Itoa(index)) }

// adopt replaces the program of the interface's pinned link. It returns nil if there is none: an
// earlier interface may have had the index.
func (f LinkFolder) adopt(index int, prog *ebpf.Program) (link.Link, error) {
	l, err := link.LoadPinnedLink(f.pin(index), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open pinned link: %w", err)
	}
	where, former, err := pins.Attached(l)
	if err == nil && where == uint32(index) {
		if err = f.Exchange.Replace(former, prog, l.Update); err == nil {
			return l, nil
		}
	}
	f.Log.Warn("a pinned link cannot be adopted and is created again", "ifindex", index, "error", err)
	return nil, errors.Join(l.Unpin(), l.Close())
}

// Programs returns the programs of pinned links whose interface exists.
func (f LinkFolder) Programs() (list []ebpf.ProgramID, err error) {
	if f.Path == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(f.Path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list pinned links: %w", err)
	}
	for _, e := range entries {
		l, err := link.LoadPinnedLink(filepath.Join(f.Path, e.Name()), nil)
		if err != nil {
			return nil, fmt.Errorf("open pinned link: %w", err)
		}
		where, program, err := pins.Attached(l)
		if err := errors.Join(err, l.Close()); err != nil {
			return nil, err
		}
		if where != 0 {
			list = append(list, program)
		}
	}
	return list, nil
}

// Drop detaches the interface's pinned link, if there is one.
func (f LinkFolder) Drop(index int) error {
	if f.Path == "" {
		return nil
	}
	l, err := link.LoadPinnedLink(f.pin(index), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open pinned link: %w", err)
	}
	defer l.Close()
	return linkAttachment{l, true}.Detach()
}

// DropOthers detaches all pinned links except those of interfaces to keep.
func (f LinkFolder) DropOthers(keep func(index int) bool) error {
	if f.Path == "" {
		return nil
	}
	list, err := os.ReadDir(f.Path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list pinned links: %w", err)
	}
	var errs []error
	for _, e := range list {
		if index, err := strconv.Atoi(e.Name()); err == nil && !keep(index) {
			errs = append(errs, f.Drop(index))
		}
	}
	return errors.Join(errs...)
}
