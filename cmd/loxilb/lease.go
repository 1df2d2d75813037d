package main

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/announce/election"
	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/datapath/routing"
)

// kernelLeases makes the kernel answer for VIPs only while leases last. The leases of elections and
// of roles that were set with a lease are separate parts.
type kernelLeases struct {
	*routing.Leases
	log *slog.Logger

	mu    sync.Mutex
	parts []*leasePart
}

// leasePart holds the instances of elections, or those of roles with a lease.
type leasePart struct {
	*kernelLeases
	known     bool // Keep has been called
	instances []string
}

func (k *kernelLeases) part() *leasePart {
	p := &leasePart{kernelLeases: k}
	k.parts = append(k.parts, p)
	return p
}

// Own makes the kernel answer for the VIPs of an instance until a time.
func (k *kernelLeases) Own(instance string, until time.Time) {
	if err := k.RenewLease(instance, until); err != nil {
		k.log.Error("lease of VIPs cannot be set", "instance", instance, "error", err)
	}
}

// Keep removes the leases of all other instances, so the kernel always answers for their VIPs. It
// waits until all parts have called it: a lease of an earlier process may belong to another part.
func (p *leasePart) Keep(instances []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.instances = true, instances
	var all []string
	for _, one := range p.parts {
		if !one.known {
			return
		}
		all = append(all, one.instances...)
	}
	if err := p.KeepLeases(all); err != nil {
		p.log.Error("leases of VIPs cannot be removed", "error", err)
	}
}

// leaseGuard keeps leases of elections for the next process in a file, and in the kernel.
type leaseGuard struct {
	*leaseFile
	*leasePart
}

// leaseFile records when a silent node loses its roles to its peer. The file outlives the process:
// a daemon that starts after that time does not continue as MASTER. The file is mapped memory, as
// the time changes with each BFD packet. It holds two times since the boot of the machine, one of
// them zero: the first is for a node with a peer, the second for one without. Older versions read
// the first. A MASTER of an earlier boot always starts as BACKUP.
type leaseFile struct{ memory []byte }

const (
	leaseWord = 8
	leaseSize = 2 * leaseWord
)

// openLeaseFile opens the file. If it fails, the lease ends with the process.
func openLeaseFile(path string) (*leaseFile, error) {
	l := &leaseFile{make([]byte, leaseSize)}
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

// Record sets the lease.
func (l *leaseFile) Record(lease election.Lease) {
	var times [leaseSize / leaseWord]uint64
	if !lease.Until.IsZero() {
		kind := 0
		if lease.Alone {
			kind = 1
		}
		times[kind] = uint64(monotime.Uptime() + time.Until(lease.Until))
	}
	for i, at := range times {
		binary.NativeEndian.PutUint64(l.memory[i*leaseWord:], at)
	}
}

// Recorded returns the lease.
func (l *leaseFile) Recorded() election.Lease {
	for _, alone := range []bool{false, true} {
		word := l.memory
		if alone {
			word = word[leaseWord:]
		}
		if at := binary.NativeEndian.Uint64(word); at != 0 {
			return election.Lease{Until: time.Now().Add(time.Duration(at) - monotime.Uptime()), Alone: alone}
		}
	}
	return election.Lease{}
}
