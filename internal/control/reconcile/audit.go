package reconcile

import (
	"context"
	"slices"
	"strings"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// healthDelay is how long the services loop may take to follow a change of an endpoint's health.
const healthDelay = time.Second

// auditBatch is the number of services compared before the loop does other work.
const auditBatch = 64

// Comparer returns the differences between a service of the data path and its table.
type Comparer interface {
	Compare(*bpf.ServiceTable) []string
}

// Audit compiles the services again and compares them with the data path, including slots; with
// repair, all are applied again. Services that are due anyway, in slow start, or whose endpoints
// have just become up or down, count as unsettled.
func (s *Services) Audit(ctx context.Context, data Comparer, repair bool) report.Compared {
	out := report.Compared{Table: "services as desired"}
	have := s.Tables.Services() // before reading the store: any service that is added meanwhile is in the store
	var keys []lb.Key
	wanted := map[bpf.TcServiceKey]bool{}
	for service := range s.Desired.Services.All(s.Desired.Snapshot()) {
		keys = append(keys, service.Key)
		wanted[compile.Key(service.Key)] = true
	}
	for part := range slices.Chunk(keys, auditBatch) {
		err := s.betweenPasses(ctx, func() {
			snapshot := s.Desired.Snapshot()
			resolver := compile.NewResolver(s.Desired.Services.At(snapshot))
			for _, key := range part {
				s.auditOne(snapshot, resolver, key, data, &out)
			}
		})
		if err != nil {
			out.Err = err
			return out
		}
	}
	for _, row := range have {
		if !wanted[row] {
			out.Differences = append(out.Differences, report.Difference{Table: out.Table, Row: row.String(), What: "is in the data path, but not configured"})
		}
	}
	if repair {
		s.Mark(keys...) // only differing ones are written
	}
	return out
}

// auditOne compares one service. It must be called between passes.
func (s *Services) auditOne(snapshot *store.Snapshot, resolver *compile.Resolver, key lb.Key, data Comparer, out *report.Compared) {
	service, version := s.Desired.Services.Shared(snapshot, key)
	if service == nil {
		return // it was deleted meanwhile
	}
	id := status.ID(desired.ServiceID(key))
	st, known := s.Statuses.Get(id)
	switch {
	case s.due(key) || !known || st.Desired != version || st.State() == status.Pending || s.slowStart.isRamping(key) || s.reapply.timers[key] != nil:
		out.Unsettled++
		return
	case st.State() == status.Failed:
		out.Differences = append(out.Differences, failedStatus(out.Table, key.String(), st.Err))
		return
	}
	resolved, _, _ := resolver.Resolve(*service)
	resolved = s.roles.sourced(s.Desired.Drains.Apply(snapshot, resolved))
	table := s.tableOf(&resolved)
	list := data.Compare(&table)
	if len(list) > 0 && s.Health.probes.changedWithin(&resolved, healthDelay) {
		out.Unsettled++
		return
	}
	out.Rows++
	if len(list) > 0 {
		out.Differences = append(out.Differences, report.Difference{Table: out.Table, Row: key.String(), What: strings.Join(list, "; ")})
	}
}

// AuditStatuses reports the other objects that are not applied.
func AuditStatuses(statuses *status.Table) report.Compared {
	out := report.Compared{Table: "objects as desired"}
	var verified []string
	for _, k := range kinds.All() {
		if words := k.About(); words.Verified {
			verified = append(verified, words.Name)
		}
	}
	for _, kind := range append(verified, InterfaceKind) {
		for _, st := range statuses.List(kind, false) {
			switch out.Rows++; st.State() {
			case status.Failed:
				out.Differences = append(out.Differences, failedStatus(out.Table, kind+" "+st.Key, st.Err))
			case status.Pending:
				out.Unsettled++
			}
		}
	}
	return out
}

func failedStatus(table, row string, err error) report.Difference {
	return report.Difference{Table: table, Row: row, What: "cannot be written to the data path: " + err.Error(), Fix: "correct the reported error; loxilb tries again automatically"}
}
