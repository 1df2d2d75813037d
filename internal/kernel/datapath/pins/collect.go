package pins

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Collected is what Collect removed.
type Collected struct {
	Directories, Maps, Links int
	Bytes                    uint64 // of the maps, without inner maps
}

// Collect removes pins of network namespaces that no longer exist from the directories next to dir:
// maps, links and programs at cgroups. An existing namespace keeps its pins, even without any
// process. An unknown namespace counts as existing.
func Collect(dir string) (Collected, error) {
	c := collector{live: liveCookies}
	return c.collect(dir)
}

func (c *collector) collect(dir string) (Collected, error) {
	var done Collected
	siblings, err := os.ReadDir(filepath.Dir(dir))
	if errors.Is(err, os.ErrNotExist) {
		return done, nil
	}
	if err != nil {
		return done, fmt.Errorf("list pin directories: %w", err)
	}
	var errs []error
	for _, e := range siblings {
		path := filepath.Join(filepath.Dir(dir), e.Name())
		if !e.IsDir() || path == dir {
			continue
		}
		gone, err := c.isOrphan(path)
		if err == nil && gone {
			err = c.remove(path, &done)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
	}
	return done, errors.Join(errs...)
}

// collector finds the existing namespaces when it first needs them.
type collector struct {
	live     func() (map[uint64]bool, error)
	isLoaded bool
	cookies  map[uint64]bool
	err      error
}

// isOrphan reports whether dir is a pin directory whose namespace no longer exists.
func (c *collector) isOrphan(dir string) (bool, error) {
	lives, err := namespaceExists(dir)
	if !errors.Is(err, os.ErrNotExist) {
		return err == nil && !lives, err
	}
	// A build without witnesses made the directory. Its default directories are named by the
	// namespace.
	attached, err := hasInterface(dir)
	if err != nil || attached {
		return false, err
	}
	number, ok := strings.CutPrefix(filepath.Base(dir), cookiePrefix)
	if !ok {
		return false, nil
	}
	cookie, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return false, nil //nolint:nilerr // not ours
	}
	if !c.isLoaded {
		c.isLoaded = true
		c.cookies, c.err = c.live()
	}
	if errors.Is(c.err, errPartialView) {
		return false, nil
	}
	return c.err == nil && !c.cookies[cookie], c.err
}

// remove removes a pin directory, unless a daemon has locked it since.
func (c *collector) remove(dir string, done *Collected) error {
	lock, err := AcquireExisting(dir)
	if inUse := (*InUseError)(nil); errors.As(err, &inUse) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	if gone, err := c.isOrphan(dir); err != nil || !gone {
		return err
	}
	had := count(dir)
	if err := Remove(dir); err != nil {
		return err
	}
	done.Directories++
	done.Maps += had.Maps
	done.Links += had.Links
	done.Bytes += had.Bytes
	return nil
}

// hasInterface reports whether a link of the directory is attached to an interface.
func hasInterface(dir string) (bool, error) {
	for _, folder := range linkFolders() {
		if folder == Sockets {
			continue // at a cgroup, which has no network namespace
		}
		links, err := os.ReadDir(filepath.Join(dir, folder))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("list pinned links: %w", err)
		}
		for _, e := range links {
			l, err := link.LoadPinnedLink(filepath.Join(dir, folder, e.Name()), nil)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return false, fmt.Errorf("open pinned link: %w", err)
			}
			index, _, err := Attached(l)
			_ = l.Close()
			if err != nil || index != 0 {
				return true, err
			}
		}
	}
	return false, nil
}

// count counts a directory's content for the log. Unreadable entries do not count.
func count(dir string) (c Collected) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil //nolint:nilerr // readable ones are counted
		}
		m, err := ebpf.LoadPinnedMap(path, nil)
		if err != nil {
			c.Links++
			return nil //nolint:nilerr // not a map
		}
		defer m.Close()
		c.Maps++
		if info, err := m.Info(); err == nil {
			bytes, _ := info.Memlock()
			c.Bytes += bytes
		}
		return nil
	})
	return c
}
