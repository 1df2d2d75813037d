// Package pins owns the pin directory: the folder in a BPF file system where maps and links of one
// network namespace outlive the daemon.
package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// The folders of links below a pin directory. A link is named by the index of its interface; links
// of Sockets are named by their program.
const (
	Ingress    = "links"
	Egress     = "leaving"
	XDPNative  = "xdp-native"
	XDPGeneric = "xdp-generic"
	Sockets    = "sockets"
	GTP        = "gtp"
)

const (
	mapsFolder    = "maps"
	removedFolder = "removed" // the former mapsFolder, of an unfinished removal
)

// cookiePrefix is the prefix of the names of default directories.
const cookiePrefix = "netns-"

func linkFolders() []string { return []string{Ingress, Egress, XDPNative, XDPGeneric, Sockets, GTP} }

// Dir returns the pin directory of the current network namespace, as seen from this process. By
// default (path empty) it is named by the cookie of the namespace. It mounts the BPF file system if
// necessary.
func Dir(path string) (string, error) {
	if path != "" && !below(path, usualBPFFS) {
		return path, nil
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	if path != "" {
		return filepath.Join(root, path[len(usualBPFFS):]), nil
	}
	cookie, err := Cookie()
	if err != nil {
		return "", fmt.Errorf("identify the network namespace: %w", err)
	}
	return filepath.Join(root, "loxilb", cookiePrefix+strconv.FormatUint(cookie, 10)), nil
}

func below(path, dir string) bool {
	return len(path) > len(dir) && path[:len(dir)] == dir && path[len(dir)] == '/'
}

// Cookie identifies the thread's network namespace. No other namespace gets it until the next boot,
// unlike the inode (Linux 5.14).
func Cookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
}

// Maps returns the folder of the maps, by name.
func Maps(dir string) string { return filepath.Join(dir, mapsFolder) }

// Prepare makes the folders of maps and of links at the tc hooks, and completes an interrupted
// removal.
func Prepare(dir string) error {
	if _, err := checkUnshared(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.RemoveAll(filepath.Join(dir, removedFolder)); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	for _, folder := range []string{mapsFolder, Ingress, Egress} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			return fmt.Errorf("make pin folder: %w", err)
		}
	}
	return nil
}

// KeepSize sets the size of a map to that of the pinned map: a map of another size would begin
// empty.
func KeepSize(dir, name string, spec *ebpf.MapSpec) error {
	pinned, err := ebpf.LoadPinnedMap(filepath.Join(Maps(dir), name), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open pinned map %s: %w", name, err)
	}
	defer pinned.Close()
	spec.MaxEntries = pinned.MaxEntries()
	return nil
}

// Remove detaches all links that are pinned in a pin directory, and removes it with its maps. It
// refuses a directory that loxilb did not make. If Remove is killed at any point, all of the maps
// or none are left, so a start can continue. The witness is removed last, since Collect needs it to
// find the rest.
func Remove(dir string) error {
	if err := Empty(dir); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	return nil
}

// Empty is Remove for a pin directory that stays in use: the directory stays, and its lock with it.
func Empty(dir string) error {
	if err := CheckOwned(dir); err != nil {
		return err
	}
	for _, folder := range linkFolders() {
		if err := RemoveLinks(filepath.Join(dir, folder)); err != nil {
			return err
		}
	}
	removed := filepath.Join(dir, removedFolder)
	err := os.RemoveAll(removed) // of a removal that was killed
	if err == nil {
		err = os.Rename(Maps(dir), removed)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove pins: %w", err)
	}
	for _, path := range []string{removed, filepath.Join(dir, layoutsPin), filepath.Join(dir, detachMark)} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove pins: %w", err)
		}
	}
	return nil
}

// RemoveLinks detaches the links that are pinned in a folder, and removes it.
func RemoveLinks(folder string) error {
	links, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list pinned links: %w", err)
	}
	for _, e := range links {
		path := filepath.Join(folder, e.Name())
		if l, err := link.LoadPinnedLink(path, nil); err == nil {
			err = errors.Join(l.Detach(), l.Close())
			if err != nil {
				return fmt.Errorf("detach %s: %w", path, err)
			}
		}
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("remove pinned links: %w", err)
	}
	return nil
}

// Attached returns the index of the interface that a tcx or XDP link is attached to, 0 once that is
// gone, and the program there.
func Attached(l link.Link) (index uint32, program ebpf.ProgramID, err error) {
	info, err := l.Info()
	if err != nil {
		return 0, 0, fmt.Errorf("read link: %w", err)
	}
	if tcx := info.TCX(); tcx != nil {
		return tcx.Ifindex, info.Program, nil
	}
	if xdp := info.XDP(); xdp != nil {
		return xdp.Ifindex, info.Program, nil
	}
	return 0, 0, fmt.Errorf("read link: neither tcx nor XDP but %v", info.Type)
}
