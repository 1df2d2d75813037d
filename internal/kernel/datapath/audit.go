package datapath

import (
	"context"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
)

// Audit compares everything that this process has written into the kernel with the kernel's current
// content; with repair, it repairs differences.
func (d *Datapath) Audit(repair bool) []report.Compared {
	out := d.Tables.Audit(repair)
	out = append(out, d.firewall.Audit(repair)...)
	out = append(out, d.policies.Audit(repair)...)
	out = append(out, d.Attached.Audit(repair)...)
	out = append(out, d.Routing.Audit(repair)...)
	out = append(out, d.Leases.Audit(repair), d.AuditHostPorts(repair), d.auditLocal(repair), d.Hooks.Audit(repair))
	out = append(out, d.XDP.Audit(repair)...)
	return append(out, d.collection.AuditPins(repair))
}

// auditLocal checks whether the packet path has been notified of endpoints on this machine.
func (d *Datapath) auditLocal(repair bool) report.Compared {
	d.localMu.Lock()
	defer d.localMu.Unlock()
	var want uint32
	if d.local {
		want = 1
	}
	return rows.CheckVariables(repair, rows.Variable{Name: "local_endpoints", In: d.collection.Variables.LocalEndpoints, Want: want})
}

// AuditConnections checks the consistency of connections: of the sample with a number, or of all.
func (d *Datapath) AuditConnections(ctx context.Context, sample uint64, whole, repair bool) report.Compared {
	return d.Table.Audit(ctx, sample, whole, repair)
}

// Compare returns the differences between a service of the data path and its table, or nil.
func (d *Datapath) Compare(want *bpf.ServiceTable) []string { return d.Tables.Compare(want) }
