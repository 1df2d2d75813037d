package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/datapath/bpf"
)

// An endpoint that leaves its service keeps its row, and so its address and its counters, until its last connection
// is gone; and a deleted service keeps its id as long as it has such endpoints. The sweep ends connections, and has
// the rows freed.

// endEndpoint lets an endpoint's row go once its connections have: those that flags name are ended by the
// next sweep, the others end in their own time.
func (d *Datapath) endEndpoint(e *endpoint, flags uint16) error {
	s := e.service
	if s.ending == nil {
		s.ending = map[netip.AddrPort]*endpoint{}
	}
	e.ended = d.tables.now()
	s.ending[e.at] = e
	d.tables.ending[e.id] = e
	return d.writeEndpoint(e, flags)
}

func (d *Datapath) deleteService(key bpf.TcServiceKey) error {
	s, ok := d.tables.services[key]
	if !ok {
		return nil
	}
	if err := d.obj.Services.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete service: %w", err)
	}
	delete(d.tables.services, key)
	s.deleted = true
	errs := []error{d.countVIP(key.Vip, -1)}
	for _, e := range s.ending {
		s.order = append(s.order, e)
	}
	for _, e := range s.order {
		errs = append(errs, d.endEndpoint(e, endpointEndTCP|endpointEndUDP))
	}
	d.tables.slots.put(s.slots)
	s.slots, s.order = slotRange{}, nil
	d.releaseService(s)
	return errors.Join(errs...)
}

// forsake takes back what a service that failed was given: the rows of fresh endpoints, and those of the service
// itself if it was not there before.
func (d *Datapath) forsake(s *service, fresh []*endpoint, there bool) error {
	flags := endpointEndUDP
	if !there {
		s.deleted = true
		flags |= endpointEndTCP
	}
	var errs []error
	for _, e := range fresh {
		errs = append(errs, d.endEndpoint(e, flags))
	}
	d.releaseService(s)
	return errors.Join(errs...)
}

// releaseService gives a deleted service's id back when none of its endpoints needs it any more.
func (d *Datapath) releaseService(s *service) {
	if s.deleted && len(s.ending) == 0 {
		d.tables.serviceIDs.put(s.id)
	}
}

// reapAtOnce is how many rows are freed before others get the lock.
const reapAtOnce = 64

// reap frees the rows of endpoints that were taken out of their services and have no connection left. It reads the
// counts of all endpoints in bulk, waits for packets that may have seen one of these in its service and be about to
// open a connection, and then looks again.
func (d *Datapath) reap() error {
	before := d.tables.now()
	free, err := d.idleEnding()
	if err != nil || len(free) == 0 {
		return err
	}
	if !d.quiesce() {
		before = before.Add(-restTime)
	}
	for part := range slices.Chunk(free, reapAtOnce) {
		if err := d.reapSome(part, before); err != nil {
			return err
		}
	}
	return nil
}

// idleEnding lists ending endpoints that have no connection.
func (d *Datapath) idleEnding() ([]uint32, error) {
	d.mu.RLock()
	n := len(d.tables.ending)
	d.mu.RUnlock()
	if n == 0 {
		return nil, nil
	}
	var idle []uint32
	err := d.eachState(func(ids []uint32, rows []bpf.TcEndpointState) {
		d.mu.RLock()
		defer d.mu.RUnlock()
		for i, id := range ids {
			if _, ok := d.tables.ending[id]; ok && rows[i].Active == 0 {
				idle = append(idle, id)
			}
		}
	})
	return idle, err
}

// quiesce returns true when all packets are through that were in the programs when it was called. A program runs
// within one RCU read section, and this barrier waits for a grace period, some 10 ms. False: the kernel does not
// offer it (nohz_full), time must do.
func (d *Datapath) quiesce() bool {
	d.mu.RLock()
	alone := len(d.attached) == 0 && d.cfg.PinDir == ""
	d.mu.RUnlock()
	if alone {
		return true // no packets but those of Run
	}
	const global = 1 // MEMBARRIER_CMD_GLOBAL
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
	return errno == 0
}

// reapSome frees those that are still idle and were taken out before a time.
func (d *Datapath) reapSome(list []uint32, before time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range list {
		e, ok := d.tables.ending[id]
		if !ok || e.ended.After(before) {
			continue
		}
		c, err := d.readEndpoint(id)
		if err != nil {
			return err
		}
		if c.active != 0 {
			continue
		}
		if err := d.obj.Endpoints.Put(id, bpf.TcEndpoint{}); err != nil {
			return fmt.Errorf("free endpoint %s: %w", e.at, err)
		}
		delete(d.tables.ending, id)
		delete(d.tables.endpoints, id)
		delete(e.service.ending, e.at)
		d.tables.endpointIDs.put(id)
		e.service.retired.add(c)
		d.releaseService(e.service)
	}
	return nil
}
