package datapath

import (
	"context"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
)

// Audit compares everything that this process has written into the kernel with its present content;
// with mend, it repairs differences.
func (d *Datapath) Audit(mend bool) []report.Compared {
	out := d.Tables.Audit(mend)
	out = append(out, d.firewall.Audit(mend)...)
	out = append(out, d.policies.Audit(mend)...)
	out = append(out, d.Attached.Audit(mend)...)
	out = append(out, d.Routing.Audit(mend)...)
	out = append(out, d.Leases.Audit(mend), d.AuditHostPorts(mend), d.auditLocal(mend), d.Hooks.Audit(mend))
	out = append(out, d.XDP.Audit(mend)...)
	return append(out, d.collection.AuditPins(mend))
}

// auditLocal checks whether the packet path knows of endpoints on this machine.
func (d *Datapath) auditLocal(mend bool) report.Compared {
	d.localMu.Lock()
	defer d.localMu.Unlock()
	var want uint32
	if d.local {
		want = 1
	}
	return rows.CheckVariables(mend, rows.Variable{Name: "local_endpoints", In: d.collection.Variables.LocalEndpoints, Want: want})
}

// AuditConnections looks whether connections hang together: the sample of a number, or all.
func (d *Datapath) AuditConnections(ctx context.Context, sample uint64, whole, mend bool) report.Compared {
	return d.Table.Audit(ctx, sample, whole, mend)
}

// Compare returns the differences between a service of the data path and its table, or nil.
func (d *Datapath) Compare(want *bpf.ServiceTable) []string { return d.Tables.Compare(want) }
