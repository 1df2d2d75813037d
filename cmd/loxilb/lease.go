package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lease is when a peer takes over from this node unless it hears it, in a file that outlives the
// process: a daemon that starts later than that does not continue as MASTER. The file is memory, as
// the time changes with each BFD packet. Its content is a time since the boot of the machine: a
// MASTER of another boot starts as BACKUP anyway.
type lease struct{ memory []byte }

const leaseSize = 8

// openLease opens the lease in a file. If it fails, the lease ends with the process.
func openLease(path string) (*lease, error) {
	l := &lease{make([]byte, leaseSize)}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return l, fmt.Errorf("open the lease of roles: %w", err)
	}
	defer f.Close() //nolint:errcheck // the mapping stays
	if err := f.Truncate(leaseSize); err != nil {
		return l, fmt.Errorf("make the lease of roles: %w", err)
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, leaseSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return l, fmt.Errorf("map the lease of roles: %w", err)
	}
	l.memory = memory
	return l, nil
}

// Renew sets the end of the lease; zero: no lease.
func (l *lease) Renew(until time.Time) {
	var at uint64
	if !until.IsZero() {
		at = uint64(sinceBoot() + time.Until(until))
	}
	binary.NativeEndian.PutUint64(l.memory, at)
}

// Lease returns the end of the lease; zero: no lease.
func (l *lease) Lease() time.Time {
	at := binary.NativeEndian.Uint64(l.memory)
	if at == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(at) - sinceBoot())
}

func sinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
