package pins

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// initialPIDNamespace is the inode of the machine's own PID namespace, the same on every machine.
const initialPIDNamespace = 0xeffffffc

var errPartialView = errors.New("not all processes of the machine are visible")

// liveCookies finds the existing network namespaces: of threads, bound to a file, or open. A
// namespace that only a socket keeps alive is not found. It takes milliseconds, more with many
// processes.
func liveCookies() (map[uint64]bool, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return nil, fmt.Errorf("find network namespaces: %w", err)
	}
	if st.Ino != initialPIDNamespace {
		return nil, fmt.Errorf("find network namespaces: %w", errPartialView)
	}
	return visibleCookies()
}

// visibleCookies returns the cookies of namespaces that visible processes keep alive.
func visibleCookies() (map[uint64]bool, error) {
	f := finder{seen: map[[2]uint64]bool{}, mounts: map[string]bool{}, cookies: map[uint64]bool{}}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		done <- f.all()
	}()
	err := <-done
	if errors.Is(err, os.ErrPermission) {
		err = fmt.Errorf("%w: %w", errPartialView, err)
	}
	if err != nil {
		return nil, fmt.Errorf("find network namespaces: %w", err)
	}
	return f.cookies, nil
}

// finder visits namespaces on its own thread.
type finder struct {
	seen    map[[2]uint64]bool // network namespaces by device and inode
	mounts  map[string]bool    // mount namespaces
	cookies map[uint64]bool
}

func (f *finder) all() error {
	pids := processes()
	if len(pids) == 0 {
		return errors.New("/proc shows no process")
	}
	for _, pid := range pids {
		proc := filepath.Join("/proc", pid)
		threads, _ := filepath.Glob(filepath.Join(proc, "task/*/ns/net"))
		for _, thread := range threads {
			if err := f.visit(thread); err != nil {
				return err
			}
		}
		if err := errors.Join(f.visitOpen(proc), f.visitBound(proc)); err != nil {
			return err
		}
	}
	return nil
}

// visitOpen visits namespaces that a process has open.
func (f *finder) visitOpen(proc string) error {
	files, err := os.ReadDir(filepath.Join(proc, "fd"))
	if errors.Is(err, os.ErrPermission) {
		return err
	}
	for _, e := range files {
		path := filepath.Join(proc, "fd", e.Name())
		if target, err := os.Readlink(path); err == nil && strings.HasPrefix(target, "net:[") {
			if err := f.visit(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// visitBound visits namespaces that are mounted in the mount namespace of a process.
func (f *finder) visitBound(proc string) error {
	mnt, err := os.Readlink(filepath.Join(proc, "ns/mnt"))
	if errors.Is(err, os.ErrPermission) {
		return err
	}
	if err != nil || f.mounts[mnt] {
		return nil //nolint:nilerr // the process has ended
	}
	list, err := os.Open(filepath.Join(proc, "mountinfo"))
	if err != nil {
		return nil //nolint:nilerr // the process has ended
	}
	defer list.Close()
	for s := bufio.NewScanner(list); s.Scan(); {
		// "36 35 0:4 net:[4026532281] /run/netns/a rw shared:1 - nsfs nsfs rw"
		w := strings.Fields(s.Text())
		if len(w) < 5 || !strings.HasPrefix(w[3], "net:[") {
			continue
		}
		if err := f.visit(filepath.Join(proc, "root", unescape(w[4]))); err != nil {
			return err
		}
	}
	f.mounts[mnt] = true
	return nil
}

// unescape decodes the octal escapes of blanks in mountinfo's paths.
func unescape(path string) string {
	var out strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' && i+3 < len(path) {
			if n, err := strconv.ParseUint(path[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(path[i])
	}
	return out.String()
}

// visit reads the cookie of a namespace. It ignores a namespace that has just ended.
func (f *finder) visit(path string) error {
	ns, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENXIO) {
		return nil
	}
	if err != nil {
		return err
	}
	defer ns.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(ns.Fd()), &st); err != nil {
		return err
	}
	id := [2]uint64{st.Dev, st.Ino}
	if f.seen[id] {
		return nil
	}
	err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
	if errors.Is(err, unix.EINVAL) {
		return nil // hidden by another mount: not a network namespace
	}
	if err != nil {
		return fmt.Errorf("enter %s: %w", path, err)
	}
	cookie, err := Cookie()
	if err != nil {
		return fmt.Errorf("identify %s: %w", path, err)
	}
	f.seen[id], f.cookies[cookie] = true, true
	return nil
}
