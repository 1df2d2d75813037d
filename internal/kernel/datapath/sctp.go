package datapath

import (
	"slices"

	"loxilb/internal/lb"
)

// applySCTP is Tables.Apply, and has SCTP packets handled before the first service has SCTP. If
// that fails, so do the changes of such services.
func (d *Datapath) applySCTP(changes []Change) []error {
	hasSCTP := func(c Change) bool { return c.Table != nil && c.Key.Protocol == uint8(lb.SCTP) }
	if !slices.ContainsFunc(changes, hasSCTP) {
		return d.Tables.Apply(changes)
	}
	failed := d.collection.HandleSCTP()
	if failed == nil {
		return d.Tables.Apply(changes)
	}
	errs := d.Tables.Apply(slices.DeleteFunc(slices.Clone(changes), hasSCTP))
	for i, c := range changes {
		if hasSCTP(c) {
			errs = slices.Insert(errs, i, failed)
		}
	}
	return errs
}

// adoptSCTP leaves SCTP packets to the kernel unless adopted services have SCTP: an earlier process
// may have handled them. Programs of that process serve until these services are applied.
func (d *Datapath) adoptSCTP() error {
	if d.HasProtocol(uint8(lb.SCTP)) {
		return nil
	}
	return d.collection.LeaveSCTP()
}
