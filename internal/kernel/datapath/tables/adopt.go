package tables

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
)

// Open reads the maps. They are new, or have the rows of an earlier process, whose ids must keep
// their meaning. That process may have been killed at any point.
func Open(c *loader.Collection) (*Tables, error) {
	now := time.Now
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("adopt pinned maps: %w", err)
	}
	t := &Tables{
		arrays: c, settings: &c.Settings, maps: &c.Maps, vars: &c.Variables, now: now, opened: now(),
		services:     map[bpf.TcServiceKey]*service{},
		secondary:    map[bpf.TcServiceKey]*service{},
		ranges:       map[bpf.TcServiceKey][]uint16{},
		ending:       map[uint32]*endpoint{},
		deadlines:    map[uint32]deadlines{},
		vips:         map[bpf.TcIpAddr]bpf.TcVip{},
		serviceIDs:   rows.NewIDs(uint32(MaxServices), now),
		endpointIDs:  rows.NewIDs(uint32(MaxEndpoints), now),
		slots:        rows.NewSlots(c.Slots, now),
		local:        map[bpf.TcIpAddr]uint8{},
		attached:     attached{rows: map[uint32]bpf.TcAttachments{}},
		localChanged: make(chan struct{}, 1),
		handshakes:   handshakes{arrays: c.Handshakes, bell: c.Bell, cpus: cpus},
		egress:       map[bpf.TcEgressKey][]egress{},
		helperOf:     map[*service]uint16{},
		countSets: []map[string]*ebpf.Variable{{
			"range_services": c.Variables.RangeServices, "marked_services": c.Variables.MarkedServices, "host_services": c.Variables.HostServices,
		}},
	}
	if t.filter, err = rows.OpenFilter(c.Maps.BloomFilter, c.Fresh); err != nil {
		return nil, err
	}
	if err := t.adopt(c); err != nil {
		t.Close()
		return nil, fmt.Errorf("adopt pinned maps: %w", err)
	}
	return t, nil
}

func (t *Tables) adopt(c *loader.Collection) (err error) {
	if !c.Pinned() {
		return nil // no earlier process
	}
	if t.removed, err = openRemoved(c.MapFolder()); err != nil {
		return err
	}
	if t.endTimes, err = openEndTimes(c.MapFolder()); err != nil || c.Fresh {
		return err
	}
	t.persisting = true // assume so
	byID, err := t.adoptServices()
	if err != nil {
		return err
	}
	if err := t.adoptVIPs(); err != nil {
		return err
	}
	if err := errors.Join(t.adoptRanges(), t.adoptSources(), t.writeCounts()); err != nil {
		return err
	}
	if err := t.adoptEndpoints(byID); err != nil {
		return err
	}
	if err := t.adoptDeadlines(); err != nil {
		return err
	}
	if err := errors.Join(t.adoptLimits(byID), t.adoptConnectionLimits(byID), t.adoptSNAT(byID), t.adoptQUIC(byID),
		t.adoptSCTPVIPs(byID), t.adoptLocal(), t.adoptEgress(), t.adoptHelpers(), t.adoptAttachments()); err != nil {
		return err
	}
	return t.adoptCounters(byID)
}

func (t *Tables) adoptServices() (map[uint32]*service, error) {
	byID := map[uint32]*service{}
	var used []rows.Range
	secondary := map[bpf.TcServiceKey]bpf.TcService{}
	var errs []error
	err := rows.EachBatch(t.maps.Services, rows.All, func(keys []bpf.TcServiceKey, rows []bpf.TcService) {
		for i, row := range rows {
			if row.Flags&serviceSecondary != 0 {
				secondary[keys[i]] = row
				continue
			}
			if byID[row.Id] != nil {
				continue // a hash may list a row twice
			}
			s := &service{key: keys[i], id: row.Id, row: row, portMax: uint16(row.PortMax)}
			t.services[s.key] = s
			t.count(s.key, 1)
			t.serviceIDs.Take(row.Id)
			byID[row.Id] = s
			errs = append(errs, t.expectDirectAnswers(row))
			if row.SlotCount > 0 {
				used = append(used, s.slots())
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read services: %w", err)
	}
	return byID, errors.Join(append(errs, t.slots.Adopt(used), t.adoptSecondary(secondary, byID))...)
}

// adoptEndpoints visits all existing rows.
func (t *Tables) adoptEndpoints(byID map[uint32]*service) error {
	var errs []error
	err := rows.EachOf(t.arrays.Endpoints, rows.All, func(ids []uint32, rows []bpf.TcEndpoint) {
		for i, row := range rows {
			if row.Flags&endpointInUse != 0 {
				errs = append(errs, t.adoptEndpoint(ids[i], row, byID))
			}
		}
	})
	if err != nil {
		return fmt.Errorf("read endpoints: %w", err)
	}
	return errors.Join(errs...)
}

// adoptEndpoint adopts a row. If its service is gone, it is ending, whether or not the earlier
// process could still record that.
func (t *Tables) adoptEndpoint(id uint32, row bpf.TcEndpoint, byID map[uint32]*service) error {
	s, ok := byID[row.Service]
	if !ok {
		s = &service{id: row.Service, deleted: true}
		byID[row.Service] = s
		t.serviceIDs.Take(row.Service)
	}
	e := &endpoint{
		id: id, addr: row.Addr, port: row.Port, currentWeight: row.Weight, service: s,
		source: row.Source, sourceBits: row.SourceBits, addrBits: row.AddrBits, flags: row.Flags & (endpointShift | endpointFailed | endpointSNAT | endpointCompared),
	}
	t.enterEndpoint(e)
	t.endpointIDs.Take(id)
	if !s.deleted && row.Flags&endpointRemoved == 0 {
		s.order = append(s.order, e)
		return nil
	}
	if s.ending == nil {
		s.ending = map[netip.AddrPort]*endpoint{}
	}
	s.ending[e.at()] = e
	t.ending[id] = e
	if row.Flags&endpointRemoved == 0 {
		return t.writeEndpoints([]*endpoint{e}, endpointRemoved)
	}
	return nil
}

// adoptCounters adds the counts of removed endpoints to their services, and finds rows without an
// owner whose counters still exist: they are cleared when they are reused.
func (t *Tables) adoptCounters(byID map[uint32]*service) error {
	err := t.removed.each(func(id uint32, c counters) {
		if s := byID[id]; s != nil {
			s.makeExtras().removed = c
		}
		if id == allRemoved {
			t.removedTotal = c
		}
	})
	if err != nil {
		return err
	}
	err = rows.EachBatch(t.maps.ServiceStates, MaxServices, func(ids []uint32, rows []bpf.TcServiceState) {
		for i, row := range rows {
			if row != (bpf.TcServiceState{}) && byID[ids[i]] == nil {
				t.serviceIDs.TakeFreed(ids[i])
			}
		}
	})
	if err != nil {
		return fmt.Errorf("read service counters: %w", err)
	}
	err = t.arrays.EndpointStates.Each(rows.All, func(ids []uint32, rows []bpf.TcEndpointState) {
		for i, row := range rows {
			if row != (bpf.TcEndpointState{}) && t.endpoint(ids[i]) == nil {
				t.endpointIDs.TakeFreed(ids[i])
			}
		}
	})
	if err != nil {
		return fmt.Errorf("read endpoint counters: %w", err)
	}
	return nil
}
