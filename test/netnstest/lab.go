// Package netnstest builds small networks out of Linux network namespaces: hosts joined by veth
// pairs, with addresses, routes, processes and servers of the caller's choice. The demo, the tests
// and the benchmarks all use it; it does not import testing (labtest does, beside it).
//
// It needs root. What it makes lives under /run/netns, so `ip netns exec NAME ...` works on it, and
// carries the process id in its name, so that what a killed process left behind can be told and
// removed.
package netnstest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
)

// Lab is a set of hosts that are made, and removed, together. Its methods may be called from any
// goroutine.
type Lab struct {
	prefix string
	keep   bool

	mu        sync.Mutex
	hosts     []*Host
	processes []*Process
	cleanups  []func()
	closed    bool
}

// New makes an empty lab whose namespaces die with this process: Close removes them, and should the
// process be killed before that, the next New of any process does.
func New() (*Lab, error) {
	if err := prepareDirs(); err != nil {
		return nil, fmt.Errorf("new lab: %w", err)
	}
	reap()
	for n := 1; ; n++ {
		prefix := fmt.Sprintf("%s%d-%d-", labPrefix, os.Getpid(), n)
		err := claim(prefix)
		if err == nil {
			return &Lab{prefix: prefix}, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("new lab %s: %w", prefix, err)
		}
	}
}

// NewNamed makes an empty lab whose namespaces are called prefix-NAME and outlive this process
// unless Close is called. What an earlier lab of the same prefix left is removed first.
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

// Host makes a host: a namespace with its loopback up, nothing else, and forwarding off.
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

// Cleanup has f called by Close, before processes are stopped, the last one first.
func (l *Lab) Cleanup(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanups = append(l.cleanups, f)
}

// Close stops all processes and removes all namespaces. It may be called more than once.
func (l *Lab) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	hosts, processes, cleanups := l.hosts, l.processes, l.cleanups
	l.mu.Unlock()

	for i := len(cleanups) - 1; i >= 0; i-- {
		cleanups[i]()
	}
	for i := len(processes) - 1; i >= 0; i-- {
		processes[i].Stop()
	}
	var errs []error
	for i := len(hosts) - 1; i >= 0; i-- {
		errs = append(errs, hosts[i].close())
	}
	if !l.keep {
		errs = append(errs, unclaim(l.prefix))
	}
	return errors.Join(errs...)
}
