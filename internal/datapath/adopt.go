package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/bpf"
)

// adopt reads back what the maps hold: nothing when they are new, else the rows of an earlier process, whose
// ids must go on meaning the same. That process may have been killed at any point.
func (d *Datapath) adopt() error {
	now := time.Now
	d.tables = tables{
		services:    map[bpf.TcServiceKey]*service{},
		secondary:   map[bpf.TcServiceKey]*service{},
		endpoints:   map[uint32]*endpoint{},
		ending:      map[uint32]*endpoint{},
		vips:        map[bpf.TcIpAddr]bpf.TcVip{},
		serviceIDs:  newIDs(maxServices, now),
		endpointIDs: newIDs(maxEndpoints, now),
		slots:       newSlotSpace(d.obj.Slots, d.segment, now),
		local:       map[bpf.TcIpAddr]struct{}{},
		egress:      map[bpf.TcEgressKey][]egress{},
		now:         now,
	}
	if d.cfg.PinDir == "" {
		return nil // there is no earlier process
	}
	var err error
	if d.tables.retired, err = openRetired(d.mapPins()); err != nil || d.fresh {
		return err
	}
	d.tables.persisting = true // for all we know
	byID, err := d.adoptServices()
	if err != nil {
		return err
	}
	if err := d.adoptVIPs(); err != nil {
		return err
	}
	if err := errors.Join(d.adoptRanges(), d.adoptSources(), d.tellCounts()); err != nil {
		return err
	}
	if err := d.adoptEndpoints(byID); err != nil {
		return err
	}
	if err := d.adoptMSS(byID); err != nil {
		return err
	}
	if err := errors.Join(d.adoptSNAT(), d.adoptEgress()); err != nil {
		return err
	}
	return d.adoptCounters(byID)
}

// unknown is no number of jiffies that was ever written: it is written again.
const unknown = ^uint32(0)

func (d *Datapath) adoptServices() (map[uint32]*service, error) {
	byID := map[uint32]*service{}
	var used []slotRange
	secondary := map[bpf.TcServiceKey]bpf.TcService{}
	err := eachBatch(d.obj.Services, everything, func(keys []bpf.TcServiceKey, rows []bpf.TcService) {
		for i, row := range rows {
			if row.Flags&serviceSecondary != 0 {
				secondary[keys[i]] = row
				continue
			}
			if byID[row.Id] != nil {
				continue // a hash may list a row twice
			}
			s := &service{key: keys[i], id: row.Id, persist: unknown, slots: slotRange{uint32(row.SlotSegment), uint32(row.SlotOffset), row.SlotCount}, portMax: uint16(row.PortMax)}
			d.tables.services[s.key] = s
			d.tables.count(s.key, 1)
			s.snat = int(row.SourceCount)
			s.egress = row.Flags&serviceEgress != 0
			d.tables.serviceIDs.take(row.Id)
			byID[row.Id] = s
			if s.slots.count > 0 {
				used = append(used, s.slots)
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read services: %w", err)
	}
	return byID, errors.Join(d.adoptSecondary(secondary, byID), d.tables.slots.adopt(used))
}

// adoptVIPs mends the counts that an earlier process did not get to.
func (d *Datapath) adoptVIPs() error {
	stale := map[bpf.TcIpAddr]bool{}
	missing := make(map[bpf.TcIpAddr]bool, len(d.tables.vips))
	for vip := range d.tables.vips {
		missing[vip] = true
	}
	err := eachBatch(d.obj.Vips, everything, func(keys []bpf.TcIpAddr, counts []bpf.TcVip) {
		for i, vip := range keys {
			if d.tables.vips[vip] == counts[i] {
				delete(missing, vip)
			} else if d.tables.vips[vip].Services == 0 {
				stale[vip] = true
			}
		}
	})
	if err != nil {
		return fmt.Errorf("read VIPs: %w", err)
	}
	for vip := range stale {
		if err := d.obj.Vips.Delete(vip); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete VIP: %w", err)
		}
	}
	for vip := range missing {
		if err := d.obj.Vips.Put(vip, d.tables.vips[vip]); err != nil {
			return fmt.Errorf("write VIP: %w", err)
		}
	}
	return nil
}

// adoptEndpoints goes through the whole array: it is nearly empty as a rule, and 262,144 rows long.
func (d *Datapath) adoptEndpoints(byID map[uint32]*service) error {
	var errs []error
	err := eachBatch(d.obj.Endpoints, maxEndpoints, func(ids []uint32, rows []bpf.TcEndpoint) {
		for i, row := range rows {
			if row.Flags&endpointInUse != 0 {
				errs = append(errs, d.adoptEndpoint(ids[i], row, byID))
			}
		}
	})
	if err != nil {
		return fmt.Errorf("read endpoints: %w", err)
	}
	return errors.Join(errs...)
}

// adoptEndpoint takes the row back as what it was. That of a service which is gone is ending, whether or not the
// earlier process could still say so.
func (d *Datapath) adoptEndpoint(id uint32, row bpf.TcEndpoint, byID map[uint32]*service) error {
	s, ok := byID[row.Service]
	if !ok {
		s = &service{id: row.Service, persist: unknown, deleted: true}
		byID[row.Service] = s
		d.tables.serviceIDs.take(row.Service)
	}
	e := &endpoint{id: id, at: bpf.AddrPort(row.Addr, row.Port), takes: row.Weight, shift: row.Flags&endpointShift != 0, source: row.Source.Netip(), service: s}
	d.tables.endpoints[id] = e
	d.tables.endpointIDs.take(id)
	const both = endpointEndTCP | endpointEndUDP
	if !s.deleted && row.Flags&both == 0 {
		s.order = append(s.order, e)
		return nil
	}
	if s.ending == nil {
		s.ending = map[netip.AddrPort]*endpoint{}
	}
	s.ending[e.at] = e
	d.tables.ending[id] = e
	if s.deleted && row.Flags&both != both {
		return d.writeEndpoints([]*endpoint{e}, both)
	}
	return nil
}

// adoptCounters gives services what their removed endpoints have counted, and finds rows whose owner is gone and whose
// counters are still there: they are cleared when they are used again.
func (d *Datapath) adoptCounters(byID map[uint32]*service) error {
	err := d.tables.retired.each(func(id uint32, c counters) {
		if s := byID[id]; s != nil {
			s.retired = c
		}
	})
	if err != nil {
		return err
	}
	err = eachBatch(d.obj.ServiceStates, maxServices, func(ids []uint32, rows []bpf.TcServiceState) {
		for i, row := range rows {
			if row != (bpf.TcServiceState{}) && byID[ids[i]] == nil {
				d.tables.serviceIDs.takeFreed(ids[i])
			}
		}
	})
	if err != nil {
		return fmt.Errorf("read service counters: %w", err)
	}
	err = eachBatch(d.obj.EndpointStates, maxEndpoints, func(ids []uint32, rows []bpf.TcEndpointState) {
		for i, row := range rows {
			if row != (bpf.TcEndpointState{}) && d.tables.endpoints[ids[i]] == nil {
				d.tables.endpointIDs.takeFreed(ids[i])
			}
		}
	})
	if err != nil {
		return fmt.Errorf("read endpoint counters: %w", err)
	}
	return nil
}
