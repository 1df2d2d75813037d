package routing

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
)

// MaxLeases is the maximum number of instances of a VIP that are checked. A VIP of more instances
// has no lease.
const MaxLeases = int(bpf.TcLeaseLimitLEASE_INSTANCES)

// Leases writes how long this node owns VIPs whose owner is elected, and which interfaces answer
// for VIPs. The packet path drops ARP and neighbour requests for a VIP whose leases are over, even
// if no daemon runs, and requests at other interfaces (bpf/lease/lease.h).
//
// Leases are the rows of VIPs and of instances. An instance without a row is not elected: its VIPs
// need no lease. Without a row, all interfaces answer for a VIP. Methods are safe for concurrent
// use.
type Leases struct {
	table *rows.Array // a hash that is made with the first row

	mu   sync.Mutex
	have map[bpf.TcLeaseKey]bpf.TcLease
}

// OpenLeases reads the leases of an earlier process. They stay in force until they are renewed or
// removed.
func OpenLeases(c *loader.Collection) (*Leases, error) {
	l := &Leases{table: c.Leases, have: map[bpf.TcLeaseKey]bpf.TcLease{}}
	m := l.table.Table()
	if m == nil {
		return l, nil
	}
	err := rows.EachBatch(m, rows.All, func(keys []bpf.TcLeaseKey, values []bpf.TcLease) {
		for i, k := range keys {
			l.have[k] = values[i]
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	return l, nil
}

// RenewLease sets until when this node owns the VIPs of an instance; the zero time: it does not.
func (l *Leases) RenewLease(instance string, until time.Time) error {
	var row bpf.TcLease
	if !until.IsZero() {
		row.Until = uint64(max(0, monotime.Uptime()+time.Until(until)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.put(instanceKey(instance), row)
}

// LeaseEnd returns the machine's uptime at which the lease of an instance ends or has ended; 0: the
// node does not own the VIPs. It returns false if the instance has no lease.
func (l *Leases) LeaseEnd(instance string) (uptime time.Duration, exists bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	row, exists := l.have[instanceKey(instance)]
	return time.Duration(row.Until), exists
}

// KeepLeases removes the leases of all instances except these.
func (l *Leases) KeepLeases(instances []string) error {
	keep := map[uint64]bool{}
	for _, name := range instances {
		keep[bpf.NameKey(name)] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for key := range l.have {
		if key.Instance != 0 && !keep[key.Instance] {
			errs = append(errs, l.remove(key))
		}
	}
	return errors.Join(errs...)
}

// SetLeased sets the elected instances of a VIP. It needs no lease without any, or with more than
// the packet path checks.
func (l *Leases) SetLeased(vip netip.Addr, instances []string) error {
	if len(instances) > MaxLeases {
		instances = nil
	}
	return l.changeVIP(vip, func(row *bpf.TcLease) {
		row.Instances = [MaxLeases]uint64{}
		for i, name := range instances {
			row.Instances[i] = bpf.NameKey(name)
		}
	})
}

// KeepLeased removes the leases that an earlier process left, except those of these VIPs.
func (l *Leases) KeepLeased(keep func(netip.Addr) bool) error {
	return l.changeOthers(keep, func(row *bpf.TcLease) { row.Instances = [MaxLeases]uint64{} })
}

// changeVIP changes the row of a VIP. An empty row is removed.
func (l *Leases) changeVIP(vip netip.Addr, change func(*bpf.TcLease)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.change(bpf.TcLeaseKey{Vip: bpf.Addr(vip)}, change)
}

// changeOthers changes the rows of all VIPs except these.
func (l *Leases) changeOthers(keep func(netip.Addr) bool, change func(*bpf.TcLease)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for key := range l.have {
		if key.Instance == 0 && !keep(key.Vip.Netip()) {
			errs = append(errs, l.change(key, change))
		}
	}
	return errors.Join(errs...)
}

// change changes the row of a VIP. The caller holds the lock.
func (l *Leases) change(key bpf.TcLeaseKey, change func(*bpf.TcLease)) error {
	row := l.have[key]
	change(&row)
	if row == (bpf.TcLease{}) {
		return l.remove(key)
	}
	return l.put(key, row)
}

func instanceKey(name string) bpf.TcLeaseKey { return bpf.TcLeaseKey{Instance: bpf.NameKey(name)} }

// put writes a row, unless it is there already. The caller holds the lock.
func (l *Leases) put(key bpf.TcLeaseKey, row bpf.TcLease) error {
	if have, there := l.have[key]; there && have == row {
		return nil
	}
	if err := l.table.Make(); err != nil {
		return fmt.Errorf("make the table of leases: %w", err)
	}
	if err := l.table.Table().Put(key, row); err != nil {
		return fmt.Errorf("write a lease: %w", err)
	}
	l.have[key] = row
	return nil
}

// remove removes a row, if there is one. The caller holds the lock.
func (l *Leases) remove(key bpf.TcLeaseKey) error {
	if _, there := l.have[key]; !there {
		return nil
	}
	if err := rows.Delete(l.table.Table(), key); err != nil {
		return fmt.Errorf("remove a lease: %w", err)
	}
	delete(l.have, key)
	return nil
}

// Audit compares the table with the rows that this process has written; with repair, differing rows
// are written again.
func (l *Leases) Audit(repair bool) report.Compared {
	l.mu.Lock()
	defer l.mu.Unlock()
	comparison := rows.Comparison[bpf.TcLeaseKey, bpf.TcLease]{Table: "leases", Map: l.table.Table(), Want: l.have, Name: nameOf}
	return comparison.Check(repair)
}

func nameOf(k bpf.TcLeaseKey) string {
	if k.Instance != 0 {
		return fmt.Sprintf("the lease of instance %x", k.Instance)
	}
	return "the instances and interfaces of VIP " + k.Vip.Netip().String()
}
