package tables

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
)

// Audit compares the maps with the rows written by this process; with repair, it writes differing
// rows again. It locks one map at a time; between two maps changes continue. Compare checks the
// rows of slots, with a service's table.
func (t *Tables) Audit(repair bool) (out []report.Compared) {
	for _, check := range []func(bool) report.Compared{
		t.auditServices, t.auditEndpoints, t.auditVIPs, t.auditRanges, t.auditSources, t.auditSNAT, t.auditQUICConfigs, t.auditQUICServers, t.auditSCTPVIPs, t.auditEgress, t.auditAttached, t.auditLocal,
		func(repair bool) report.Compared {
			return t.auditNumbers("idle_timeouts", t.maps.IdleTimeouts, func(s *service) uint32 { return s.idle }, repair)
		},
		func(repair bool) report.Compared {
			return t.auditNumbers("persist_timeouts", t.maps.PersistTimeouts, func(s *service) uint32 { return s.persist }, repair)
		},
		func(repair bool) report.Compared {
			return t.auditNumbers("mss_limits", t.maps.MssLimits, func(s *service) uint32 { return s.mss }, repair)
		},
		t.auditFilter, t.auditVariables,
	} {
		t.mu.Lock() // readers of counters wait, as for a change
		out = append(out, check(repair))
		t.mu.Unlock()
	}
	return out
}

func (t *Tables) auditServices(repair bool) report.Compared {
	want := make(map[bpf.TcServiceKey]bpf.TcService, len(t.services)+len(t.secondary))
	for key, s := range t.services {
		want[key] = s.row
	}
	for key, s := range t.secondary {
		row := s.row
		row.Flags |= serviceSecondary
		want[key] = row
	}
	comparison := rows.Comparison[bpf.TcServiceKey, bpf.TcService]{Table: "services", Map: t.maps.Services, Want: want, Name: bpf.TcServiceKey.String}
	return comparison.Check(repair)
}

func (t *Tables) auditEndpoints(repair bool) report.Compared {
	want := make(map[uint32]bpf.TcEndpoint, len(t.endpoints))
	for id, e := range t.endpoints {
		if e == nil || e.service.key == (bpf.TcServiceKey{}) { // of a service removed by an earlier process: its first port is unknown
			continue
		}
		var flags uint16
		if t.ending[uint32(id)] != nil {
			flags = endpointRemoved
		}
		want[uint32(id)] = endpointRow(e, flags)
	}
	comparison := rows.Comparison[uint32, bpf.TcEndpoint]{
		Table: "endpoints", Want: want,
		Name: func(id uint32) string {
			e := t.endpoint(id)
			if e == nil {
				return fmt.Sprintf("row %d", id)
			}
			return fmt.Sprintf("row %d (%s of %s)", id, e.at(), e.service.key)
		},
		Each: func(f func(uint32, bpf.TcEndpoint)) error {
			return rows.EachOf(t.arrays.Endpoints, rows.All, func(ids []uint32, list []bpf.TcEndpoint) {
				for i, id := range ids {
					f(id, list[i])
				}
			})
		},
		Others: func(id uint32, row bpf.TcEndpoint) bool { return row.Flags&endpointInUse == 0 || t.endpoint(id) != nil },
		Put:    func(id uint32, row bpf.TcEndpoint) error { return t.arrays.Endpoints.Put(id, row) },
	}
	return comparison.Check(repair)
}

func (t *Tables) auditVIPs(repair bool) report.Compared {
	comparison := rows.Comparison[bpf.TcIpAddr, bpf.TcVip]{Table: "vips", Map: t.maps.Vips, Want: t.vips, Name: addrName}
	return comparison.Check(repair)
}

func addrName(a bpf.TcIpAddr) string { return a.Netip().String() }

func (t *Tables) auditRanges(repair bool) report.Compared {
	comparison := rows.Comparison[bpf.TcRangeKey, uint32]{
		Table: "service_ranges", Map: t.maps.ServiceRanges, Want: t.wantedRanges(),
		Name: func(k bpf.TcRangeKey) string {
			return fmt.Sprintf("ports from %d on of %s", bpf.Port(k.Port), k.Vip.Netip())
		},
	}
	return comparison.Check(repair)
}

func (t *Tables) auditSources(repair bool) report.Compared {
	want := map[bpf.TcSourceKey]uint8{}
	for _, s := range t.services {
		for _, l := range []sourceList{allowedSources, deniedSources} {
			extra := s.extras()
			for _, k := range sourceKeys(s.id, l, *l.listOf(&extra)) {
				want[k] = 1
			}
		}
	}
	comparison := rows.Comparison[bpf.TcSourceKey, uint8]{
		Table: "allowed_sources", Map: t.maps.AllowedSources, Want: want,
		Name: func(k bpf.TcSourceKey) string {
			id, _ := listOf(k)
			return fmt.Sprintf("%s of service %s", prefixOf(k), t.serviceName(id))
		},
	}
	return comparison.Check(repair)
}

func (t *Tables) auditSNAT(repair bool) report.Compared {
	want := map[bpf.TcSnatSourceKey]bpf.TcIpAddr{}
	for _, s := range t.services {
		for place, a := range s.extras().snat {
			want[bpf.TcSnatSourceKey{Service: s.id, Place: uint32(place)}] = a
		}
	}
	comparison := rows.Comparison[bpf.TcSnatSourceKey, bpf.TcIpAddr]{
		Table: "snat_sources", Map: t.maps.SnatSources, Want: want,
		Name: func(k bpf.TcSnatSourceKey) string {
			return fmt.Sprintf("source address %d of %s", k.Place, t.serviceName(k.Service))
		},
	}
	return comparison.Check(repair)
}

func (t *Tables) auditEgress(repair bool) report.Compared {
	want := make(map[bpf.TcEgressKey]bpf.TcEgressEndpoint, len(t.egress))
	for key, list := range t.egress {
		if len(list) > 0 {
			want[key] = list[0].row
		}
	}
	comparison := rows.Comparison[bpf.TcEgressKey, bpf.TcEgressEndpoint]{
		Table: "egress_endpoints", Map: t.arrays.EgressEndpoints.Table(), Want: want,
		Name: func(k bpf.TcEgressKey) string { return k.Addr.Netip().String() },
	}
	return comparison.Check(repair)
}

func (t *Tables) auditAttached(repair bool) report.Compared {
	comparison := rows.Comparison[uint32, bpf.TcAttachments]{
		Table: "attached_services", Map: t.maps.AttachedServices, Want: t.attached.rows,
		Name: func(id uint32) string { return "the row of " + t.serviceName(id) },
	}
	return comparison.Check(repair)
}

func (t *Tables) auditLocal(repair bool) report.Compared {
	comparison := rows.Comparison[bpf.TcIpAddr, uint8]{Table: "local_addresses", Map: t.maps.LocalAddresses, Want: t.local, Name: addrName}
	return comparison.Check(repair)
}

// serviceName returns the name of an id's service: only for rows that differ.
func (t *Tables) serviceName(id uint32) string {
	for key, s := range t.services {
		if s.id == id {
			return key.String()
		}
	}
	return fmt.Sprintf("service number %d, which is unused", id)
}

// auditNumbers compares an array by service id. Rows of removed services are written when their ids
// are reused.
func (t *Tables) auditNumbers(table string, m *ebpf.Map, of func(*service) uint32, repair bool) report.Compared {
	want := make(map[uint32]uint32, len(t.services))
	for _, s := range t.services {
		want[s.id] = of(s)
	}
	comparison := rows.Comparison[uint32, uint32]{
		Table: table, Map: m, Want: want,
		Name: func(id uint32) string { return "the row of " + t.serviceName(id) },
		Each: func(f func(uint32, uint32)) error {
			return rows.EachBatch(m, int(t.serviceIDs.Top()), func(ids, list []uint32) {
				for i, id := range ids {
					f(id, list[i])
				}
			})
		},
		Others: func(uint32, uint32) bool { return true },
	}
	return comparison.Check(repair)
}

// auditFilter finds missing bits: packets without them bypass their service.
func (t *Tables) auditFilter(repair bool) report.Compared {
	out := report.Compared{Table: "bloom_filter"}
	t.filterKeys(func(k rows.FilterKey) {
		out.Rows++
		if t.filter.Has(k) {
			return
		}
		out.Differences = append(out.Differences, report.Difference{
			Table: out.Table, Row: "the bit of " + k.String(), What: "is missing: its packets are passed to the kernel",
		})
		if repair {
			t.filter.Add(k)
		}
	})
	return out
}

func (t *Tables) auditVariables(repair bool) report.Compared {
	list := []rows.Variable{
		{Name: "mss_services", In: t.vars.MssServices, Want: t.counts.clamped},
		{Name: "egress_count", In: t.vars.EgressCount, Want: t.egressCount},
		{Name: "tftp_ports", In: t.vars.TftpPorts, Want: t.tftpPorts},
		{Name: "ftp_services", In: t.vars.FtpServices, Want: t.ftpServices},
	}
	for _, s := range t.services {
		if s.row.Mode == uint8(bpf.TcServiceModeMODE_DSR) {
			list = append(list, rows.Variable{Name: "direct_answers", In: t.vars.DirectAnswers, Want: 1})
			break
		}
	}
	for _, set := range t.countSets {
		for name, n := range map[string]uint32{"range_services": t.counts.ranged, "marked_services": t.counts.marked, "host_services": t.counts.hosts} {
			list = append(list, rows.Variable{Name: name, In: set[name], Want: n})
		}
	}
	return rows.CheckVariables(repair, list...)
}

// Compare returns the differences between a service of the data path and its table, including its
// slots, or nil.
func (t *Tables) Compare(want *bpf.ServiceTable) (differences []string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.services[want.Key]
	if s == nil {
		return []string{"is not in the data path"}
	}
	if why := unequalEndpoints(s.order, want.Endpoints); why != "" {
		return []string{why} // slots refer to endpoints by position
	}
	differences = append(differences, t.unequalSlots(s, want)...)
	if row := t.rowOf(s, want, s.slots()); row != s.row {
		differences = append(differences, rows.Unequal(s.row, row))
	}
	for _, one := range []struct {
		what       string
		have, want any
	}{
		{"idle timeout in ticks", s.idle, t.ticks(want.Idle)},
		{"time in ticks for which clients are remembered", s.persist, t.ticks(want.Persist)},
		{"largest segment", s.mss, uint32(want.MSS)},
		{"last port", s.portMax, want.PortMax},
		{"further VIPs", fmt.Sprint(namesOf(s.secondaryVIPs())), fmt.Sprint(namesOf(want.Secondary))},
		{"source addresses", fmt.Sprint(namesOf(s.extras().snat)), fmt.Sprint(namesOf(want.SNAT))},
		{"allowed sources", fmt.Sprint(s.extras().sources), fmt.Sprint(want.Sources)},
		{"denied sources", fmt.Sprint(s.extras().denied), fmt.Sprint(want.Denied)},
	} {
		if one.have != one.want {
			differences = append(differences, fmt.Sprintf("has as %s %v, and should have %v", one.what, one.have, one.want))
		}
	}
	differences = append(differences, t.unequalQUIC(s, want)...)
	if s.extras().vips != sctpVIPs(want) {
		differences = append(differences, "has other VIPs of associations")
	}
	return append(differences, t.unequalLimits(s, want.Limits)...)
}

func namesOf(list []bpf.TcIpAddr) []netip.Addr {
	out := make([]netip.Addr, len(list))
	for i, a := range list {
		out[i] = a.Netip()
	}
	return out
}

func unequalEndpoints(have []*endpoint, want []bpf.EndpointTable) string {
	if len(have) != len(want) {
		return fmt.Sprintf("has %d endpoints, and should have %d", len(have), len(want))
	}
	for i, e := range have {
		is := bpf.EndpointTable{
			Addr: e.addr, Port: e.port, Shift: e.has(endpointShift), Source: e.source, SourceBits: e.sourceBits, AddrBits: e.addrBits, CurrentWeight: e.currentWeight,
			Failed: e.has(endpointFailed), SNAT: e.has(endpointSNAT),
		}
		w := want[i]
		w.Weight, w.Deadline, w.ServerID = 0, bpf.Deadline{}, bpf.ServerID{}
		if is != w {
			return fmt.Sprintf("endpoint %s %s", bpf.AddrPort(w.Addr, w.Port), rows.Unequal(is, w))
		}
	}
	return ""
}

func (t *Tables) unequalSlots(s *service, want *bpf.ServiceTable) []string {
	have, err := t.slots.Read(s.slots())
	if err != nil {
		return []string{"has slots that cannot be read: " + err.Error()}
	}
	if len(have) != len(want.Slots) {
		return []string{fmt.Sprintf("has %d slots, and should have %d", len(have), len(want.Slots))}
	}
	for i, slot := range want.Slots {
		if id := s.order[slot].id; have[i] != id {
			return []string{fmt.Sprintf("has at slot %d endpoint row %d, and should have %d (%s)", i, have[i], id, s.order[slot].at())}
		}
	}
	return nil
}

func (t *Tables) unequalLimits(s *service, want bpf.Limits) []string {
	m := t.arrays.ServiceLimits.Table()
	var row bpf.TcServiceLimits
	if m != nil {
		if err := m.Lookup(s.id, &row); err != nil {
			return []string{"has limits that cannot be read: " + err.Error()}
		}
	}
	have := bpf.Limits{Rate: row.Rate, Connections: row.Connections, ClientRate: row.ClientRate, ClientConnections: row.ClientConnections, ClientPrefix: row.ClientPrefix}
	if s.row.Flags&serviceLimited == 0 && !want.Any() || have == want {
		return nil
	}
	return []string{"has limits of other values: " + rows.Unequal(have, want)}
}
