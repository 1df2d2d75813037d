package rig

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const cgroupMount = "/sys/fs/cgroup"

// hierarchies returns the root directories of control groups: one for version 2, or one for each
// controller of version 1.
func hierarchies() []string {
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		return []string{cgroupMount}
	}
	found, _ := filepath.Glob(filepath.Join(cgroupMount, "*"))
	return found
}

// makeCgroups creates a node's control group in each hierarchy.
func makeCgroups(name string) (err error) {
	for _, h := range hierarchies() {
		dir := filepath.Join(h, name)
		err = errors.Join(err, os.MkdirAll(dir, 0o755))
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // empty in a new group of version 1
			if text, e := os.ReadFile(filepath.Join(h, file)); e == nil {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), text, 0o644))
			}
		}
	}
	return err
}

// removeCgroups removes a node's control groups, which must have no processes.
func removeCgroups(name string) (err error) {
	for _, h := range hierarchies() {
		err = errors.Join(err, removeCgroup(filepath.Join(h, name)))
	}
	return err
}

// removeCgroup removes a control group and those below it.
func removeCgroup(dir string) (err error) {
	entries, e := os.ReadDir(dir)
	if errors.Is(e, os.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if entry.IsDir() {
			err = errors.Join(err, removeCgroup(filepath.Join(dir, entry.Name())))
		}
	}
	return errors.Join(e, err, os.Remove(dir))
}

// removeLeftovers removes the control groups and files of clusters whose test process was killed.
// Their processes, mounts and namespaces ended with it.
func removeLeftovers() {
	for _, h := range append(hierarchies(), clustersDir()) {
		entries, _ := os.ReadDir(h)
		for _, e := range entries {
			if !ownerIsDead(e.Name()) {
				continue
			}
			if h == clustersDir() {
				_ = os.RemoveAll(filepath.Join(h, e.Name()))
			} else {
				_ = removeCgroup(filepath.Join(h, e.Name()))
			}
		}
	}
}

// ownerIsDead reports whether a name is that of a lab, labPID-N-NAME, whose process has ended.
func ownerIsDead(name string) bool {
	digits, _, _ := strings.Cut(strings.TrimPrefix(name, "lab"), "-")
	pid, err := strconv.Atoi(digits)
	return strings.HasPrefix(name, "lab") && err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
