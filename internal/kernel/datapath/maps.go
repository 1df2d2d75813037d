package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/lb/report"
)

// MapUses returns the use of the data path's maps, by name. Changes do not wait while it counts:
// a million rows take up to a second, and are then not counted again for a minute.
func (d *Datapath) MapUses() (list []report.MapUse, err error) {
	var segments map[string][]*ebpf.Map
	err = d.Tables.WithRowsLocked(func() error {
		segments = d.collection.Segments()
		return nil
	})
	if err == nil {
		list, err = d.collection.MapUses(segments)
	}
	if err != nil {
		return nil, fmt.Errorf("read sizes of maps: %w", err)
	}
	endpoints := d.Tables.EndpointRows()
	for i := range list {
		if list[i].Name == "endpoints" {
			list[i].Entries, list[i].Max = endpoints, uint64(tables.MaxEndpoints)
		}
	}
	return list, nil
}
