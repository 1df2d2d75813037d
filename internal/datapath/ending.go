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

// endEndpoints lets rows go once their connections have: those that flags name are ended by the next sweep, the
// others end in their own time.
func (d *Datapath) endEndpoints(list []*endpoint, flags uint16) error {
	now := d.tables.now()
	for _, e := range list {
		s := e.service
		if s.ending == nil {
			s.ending = map[netip.AddrPort]*endpoint{}
		}
		e.ended = now
		e.takes = 0
		s.ending[e.at] = e
		d.tables.ending[e.id] = e
	}
	return d.writeEndpoints(list, flags)
}

func (d *Datapath) deleteService(key bpf.TcServiceKey) error {
	s, ok := d.tables.services[key]
	if !ok {
		return nil
	}
	if err := d.putSecondary(s, nil); err != nil {
		return err
	}
	if err := d.obj.Services.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete service: %w", err)
	}
	delete(d.tables.services, key)
	s.deleted = true
	errs := []error{d.countService(key, -1), d.putRange(s, 0), d.keepSources(s, nil), d.countHost(key, -1), d.putEgress(s, nil, nil), d.trimSNAT(s, 0)}
	for _, e := range s.ending {
		s.order = append(s.order, e)
	}
	errs = append(errs, d.endEndpoints(s.order, endpointEndTCP|endpointEndUDP))
	d.tables.slots.put(s.slots)
	s.slots, s.order = slotRange{}, nil
	errs = append(errs, d.putPersist(s, 0), d.putMSS(s, 0))
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
	err := d.endEndpoints(fresh, flags)
	d.releaseService(s)
	return err
}

// releaseService gives a deleted service's id back when none of its endpoints needs it any more.
func (d *Datapath) releaseService(s *service) {
	if s.deleted && len(s.ending) == 0 {
		d.tables.serviceIDs.put(s.id, true)
	}
}

// reapAtOnce is how many rows are freed before others get the lock.
const reapAtOnce = 256

// reap frees the rows of endpoints that were taken out of their services and have no connection left. First it waits
// for packets that may have seen one of them in its service and be about to open a connection; after that there are
// no new ones, and forget makes sure that no client is remembered to belong to one of them.
func (d *Datapath) reap(forget func() error) error {
	before := d.tables.now()
	ending := d.anyEnding()
	if ending && !d.quiesce() {
		before = before.Add(-restTime)
	}
	if err := forget(); err != nil || !ending {
		return err
	}
	free, err := d.idleEnding(before)
	if err != nil {
		return fmt.Errorf("free endpoints: %w", err)
	}
	for part := range slices.Chunk(free, reapAtOnce) {
		if err := d.reapSome(part, before); err != nil {
			return fmt.Errorf("free endpoints: %w", err)
		}
	}
	return nil
}

func (d *Datapath) anyEnding() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.tables.ending) > 0
}

// idleEnding lists endpoints that were taken out before a time and have no connection.
func (d *Datapath) idleEnding(before time.Time) ([]freeable, error) {
	var idle []freeable
	err := d.eachState(func(ids []uint32, rows []bpf.TcEndpointState) {
		d.mu.RLock()
		defer d.mu.RUnlock()
		for i, id := range ids {
			if e := d.tables.ending[id]; e != nil && !e.ended.After(before) && rows[i].Active == 0 {
				idle = append(idle, freeable{id, rows[i].Connections})
			}
		}
	})
	return idle, err
}

// freeable is an endpoint without connections, and how many it had.
type freeable struct {
	id          uint32
	connections uint64
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

// reapSome frees those that have not been taken back meanwhile.
func (d *Datapath) reapSome(list []freeable, before time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := make([]uint32, 0, len(list))
	heirs := map[*service]bool{}
	for _, f := range list {
		e := d.tables.ending[f.id]
		if e == nil || e.ended.After(before) {
			continue
		}
		if f.connections > 0 && !e.service.deleted { // its counters have an heir, and are not all zero
			c, err := d.readEndpoint(f.id)
			if err != nil {
				return err
			}
			e.service.retired.add(c)
			heirs[e.service] = true
		}
		ids = append(ids, f.id)
		delete(d.tables.ending, f.id)
		delete(d.tables.endpoints, f.id)
		d.countLocal(e, -1)
		delete(e.service.ending, e.at)
		d.tables.endpointIDs.put(f.id, f.connections > 0)
		d.releaseService(e.service)
	}
	if len(ids) == 0 {
		return nil
	}
	for s := range heirs {
		if err := d.tables.retired.put(s.id, s.retired); err != nil {
			return err
		}
	}
	_, err := d.obj.Endpoints.BatchUpdate(ids, make([]bpf.TcEndpoint, len(ids)), nil)
	return errors.Join(err, d.followLocal())
}
