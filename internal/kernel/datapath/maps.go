package datapath

import (
	"fmt"

	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/lb/report"
)

// MapUses returns the use of the data path's maps, by name.
func (d *Datapath) MapUses() (list []report.MapUse, err error) {
	err = d.Tables.WithRowsLocked(func() error {
		list, err = d.collection.MapUses()
		return err
	})
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
