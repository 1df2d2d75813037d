package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// replaceFolder replaces a folder atomically, and keeps the former one as NAME.bk.
func replaceFolder(path string, c interfaceConfig) error {
	parent := filepath.Dir(path)
	next, err := os.MkdirTemp(parent, ".save-*")
	if err != nil {
		return fmt.Errorf("%s is unchanged: %w", path, err)
	}
	if err = writeFolder(next, c); err == nil {
		err = exchangeFolder(next, path)
	}
	if err != nil {
		if !errors.Is(err, errBackupMoved) {
			err = errors.Join(err, os.RemoveAll(next))
		}
		return fmt.Errorf("%s is unchanged: %w", path, err)
	}
	if err := syncFolder(parent); err != nil {
		return fmt.Errorf("%s is saved, but might not be on disk yet: %w", path, err)
	}
	if err := os.RemoveAll(next); err != nil { // the previous backup, if any
		return fmt.Errorf("%s is saved, with a backup in %s; an older backup remains in %s: %w", path, backup(path), next, err)
	}
	return nil
}

// backup returns the name of the former folder.
func backup(path string) string { return path + ".bk" }

// writeFolder fills a folder, and returns when all of it is on disk.
func writeFolder(path string, c interfaceConfig) error {
	for dev, files := range c {
		below := filepath.Join(path, dev)
		if err := os.Mkdir(below, 0o700); err != nil {
			return err
		}
		for name, lines := range files {
			if err := newFile(filepath.Join(below, name), []byte(strings.Join(lines, "\n")+"\n")); err != nil {
				return err
			}
		}
		if err := syncFolder(below); err != nil {
			return err
		}
	}
	return syncFolder(path)
}

var errBackupMoved = errors.New("cannot rename the backup")

// exchangeFolder renames the folder next to path, the former path to backup, and the former backup
// to next. After an error all three are unchanged, or it is errBackupMoved. The new folder takes
// the backup's name first, so the step that may fail is not the last.
func exchangeFolder(next, path string) error {
	err := rename(next, path, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	var how uint = unix.RENAME_EXCHANGE
	err = rename(next, backup(path), how)
	if errors.Is(err, unix.ENOENT) {
		how = unix.RENAME_NOREPLACE
		err = rename(next, backup(path), how)
	}
	if err != nil {
		return err
	}
	if err := rename(backup(path), path, unix.RENAME_EXCHANGE); err != nil {
		if undo := rename(backup(path), next, how); undo != nil {
			return fmt.Errorf("%w; %w: it is now %s", errors.Join(err, undo), errBackupMoved, next)
		}
		return err
	}
	return nil
}

func rename(from, to string, how uint) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, how); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// syncFolder syncs the names in a folder to disk.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
