// Package netnstest builds small networks out of Linux network namespaces: hosts joined by veth
// pairs, with addresses, routes, processes and servers. The demo, the tests and the benchmarks use
// it, so it does not import testing; labtest does.
//
// It needs root. Its namespaces are in /run/netns, so `ip netns exec NAME ...` works. Their names
// contain the process id, so the namespaces of a killed process can be found and removed.
package netnstest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// Lab is a set of hosts that are removed together. Its methods may be called from any goroutine.
type Lab struct {
	prefix string
	keep   bool

	mu        sync.Mutex
	hosts     []*Host
	processes []*Process
	cleanups  []func()
	closed    bool
}

// New returns an empty lab. Close removes its namespaces. If this process is killed before, the
// next New of any process removes them.
func New() (*Lab, error) {
	if err := prepareDirs(); err != nil {
		return nil, fmt.Errorf("new lab: %w", err)
	}
	removeStale()
	for n := 1; ; n++ {
		prefix := fmt.Sprintf("%s%d-%d-", labPrefix, os.Getpid(), n)
		err := reserve(prefix)
		if err == nil {
			return &Lab{prefix: prefix}, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("new lab %s: %w", prefix, err)
		}
	}
}

// NewNamed returns an empty lab whose namespaces are called prefix-NAME, and outlive this process
// unless Close is called. It first removes the namespaces of an earlier lab with the same prefix.
func NewNamed(prefix string) (*Lab, error) {
	if err := prepareDirs(); err != nil {
		return nil, fmt.Errorf("new lab %s: %w", prefix, err)
	}
	if err := Remove(prefix); err != nil {
		return nil, err
	}
	return &Lab{prefix: prefix + "-", keep: true}, nil
}

// Remove deletes all namespaces called prefix-NAME, and ends the processes that run in them.
func Remove(prefix string) error {
	return removeAll(func(name string) bool { return strings.HasPrefix(name, prefix+"-") })
}

// Host creates a host: a namespace with a loopback interface and without forwarding.
func (l *Lab) Host(name string) (*Host, error) {
	h, err := newHost(l.prefix+name, name)
	if err != nil {
		return nil, err
	}
	h.lab = l
	l.mu.Lock()
	l.hosts = append(l.hosts, h)
	l.mu.Unlock()
	return h, nil
}

// Cleanup registers f to be called by Close, before processes are stopped. The last registered
// function is called first.
func (l *Lab) Cleanup(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanups = append(l.cleanups, f)
}

// Mark has a lab's numbers of hosts, processes and cleanups at a point in time.
type Mark struct{ hosts, processes, cleanups int }

// Mark returns the current numbers, for Rewind.
func (l *Lab) Mark() Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Mark{len(l.hosts), len(l.processes), len(l.cleanups)}
}

// Rewind undoes changes since the mark: it calls cleanups, stops processes other than keep, and
// removes hosts.
func (l *Lab) Rewind(m Mark, keep ...*Process) error {
	l.mu.Lock()
	hosts, processes, cleanups := slices.Clone(l.hosts[m.hosts:]), slices.Clone(l.processes[m.processes:]), slices.Clone(l.cleanups[m.cleanups:])
	l.hosts, l.processes, l.cleanups = l.hosts[:m.hosts], append(l.processes[:m.processes], keep...), l.cleanups[:m.cleanups]
	l.mu.Unlock()

	for _, f := range slices.Backward(cleanups) {
		f()
	}
	for _, p := range slices.Backward(processes) {
		if !slices.Contains(keep, p) {
			p.Stop()
		}
	}
	var errs []error
	for _, h := range slices.Backward(hosts) {
		errs = append(errs, h.close())
	}
	return errors.Join(errs...)
}

// Close stops all processes and removes all namespaces. It may be called more than once.
func (l *Lab) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()

	err := l.Rewind(Mark{})
	if !l.keep {
		err = errors.Join(err, release(l.prefix))
	}
	return err
}
