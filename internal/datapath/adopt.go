package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/bpf"
)

// adopt reads back what the maps hold: nothing when they are new, else the rows of an earlier process, whose
// ids must go on meaning the same.
func (d *Datapath) adopt() error {
	spec, err := bpf.LoadTc()
	if err != nil {
		return fmt.Errorf("read data path object: %w", err)
	}
	inner := spec.Maps["slots"].InnerMap
	d.tables = tables{
		services:    map[bpf.TcServiceKey]*service{},
		endpoints:   map[uint32]*endpoint{},
		ending:      map[uint32]*endpoint{},
		vips:        map[bpf.TcIpAddr]uint32{},
		serviceIDs:  newIDs(maxServices),
		endpointIDs: newIDs(maxEndpoints),
		slots:       newSlotSpace(d.obj.Slots, inner),
	}
	byID, used, err := d.adoptServices()
	if err != nil {
		return err
	}
	if err := d.tables.slots.adopt(used); err != nil {
		return err
	}
	if len(byID) == 0 && d.cfg.PinDir == "" {
		return nil
	}
	return d.adoptEndpoints(byID)
}

func (d *Datapath) adoptServices() (map[uint32]*service, []slotRange, error) {
	byID := map[uint32]*service{}
	var used []slotRange
	var key bpf.TcServiceKey
	var row bpf.TcService
	rows := d.obj.Services.Iterate()
	for rows.Next(&key, &row) {
		s := &service{key: key, id: row.Id, slots: slotRange{uint32(row.SlotSegment), uint32(row.SlotOffset), row.SlotCount}}
		d.tables.services[key] = s
		d.tables.vips[key.Vip]++
		d.tables.serviceIDs.take(row.Id)
		byID[row.Id] = s
		if s.slots.count > 0 {
			used = append(used, s.slots)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, nil, fmt.Errorf("read services: %w", err)
	}
	return byID, used, nil
}

// adoptEndpoints goes through the array in batches: it is nearly empty as a rule, and 262,144 rows long.
func (d *Datapath) adoptEndpoints(byID map[uint32]*service) error {
	const batch = 8192
	keys, rows := make([]uint32, batch), make([]bpf.TcEndpoint, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := d.obj.Endpoints.BatchLookup(&cursor, keys, rows, nil)
		for i := range n {
			if rows[i].Flags&endpointInUse != 0 {
				d.adoptEndpoint(keys[i], rows[i], byID)
			}
		}
		if isLast(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read endpoints: %w", err)
		}
	}
}

func (d *Datapath) adoptEndpoint(id uint32, row bpf.TcEndpoint, byID map[uint32]*service) {
	s, ok := byID[row.Service]
	if !ok { // its service is deleted; keep the id apart until its connections are gone
		s = &service{id: row.Service, deleted: true}
		byID[row.Service] = s
		d.tables.serviceIDs.take(row.Service)
	}
	e := &endpoint{id: id, at: bpf.AddrPort(row.Addr, row.Port), service: s}
	s.rows++
	d.tables.endpoints[id] = e
	d.tables.endpointIDs.take(id)
	if s.deleted || row.Flags&(endpointEndTCP|endpointEndUDP) != 0 {
		d.tables.ending[id] = e
		return
	}
	s.order = append(s.order, e)
}
