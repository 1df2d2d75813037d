package tables

import (
	"errors"
	"fmt"
	"slices"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// sctpVIPs returns the VIPs that INIT ACK lists; none if the service has one.
func sctpVIPs(want *bpf.ServiceTable) (vips bpf.TcSctpVipList) {
	if want.Key.Protocol != uint8(lb.SCTP) || len(want.Secondary) == 0 {
		return vips
	}
	list := append([]bpf.TcIpAddr{want.Key.Vip}, want.Secondary...)
	list = slices.DeleteFunc(list, func(a bpf.TcIpAddr) bool { return a.Netip().IsUnspecified() })
	copy(vips.Vip[:], list)
	return vips
}

// putSCTPVIPs makes these the VIPs of a service's associations.
func (t *Tables) putSCTPVIPs(s *service, want bpf.TcSctpVipList, undo *undoLog) error {
	was := s.extras().vips
	if was == want {
		return nil
	}
	for _, a := range []*rows.Array{t.arrays.SCTPVIPs, t.arrays.SCTPPaths} {
		if err := a.Make(); err != nil {
			return err
		}
	}
	undo.add(func() error { return t.putSCTPVIPs(s, was, &undoLog{}) })
	s.makeExtras().vips = want
	table := t.arrays.SCTPVIPs.Table()
	if want == (bpf.TcSctpVipList{}) {
		return rows.Delete(table, s.id)
	}
	if err := table.Put(s.id, want); err != nil {
		return fmt.Errorf("write VIPs of associations: %w", asErrFull(err))
	}
	return nil
}

// adoptSCTPVIPs reads the rows of an earlier process, and removes rows of deleted services.
func (t *Tables) adoptSCTPVIPs(byID map[uint32]*service) error {
	m := t.arrays.SCTPVIPs.Table()
	if m == nil {
		return nil
	}
	all, err := rows.Read[uint32, bpf.TcSctpVipList](m)
	errs := []error{err}
	for id, row := range all {
		if s := byID[id]; s != nil && !s.deleted {
			s.makeExtras().vips = row
			continue
		}
		errs = append(errs, rows.Delete(m, id))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("adopt VIPs of associations: %w", err)
	}
	return nil
}

func (t *Tables) auditSCTPVIPs(repair bool) report.Compared {
	want := map[uint32]bpf.TcSctpVipList{}
	for _, s := range t.services {
		if vips := s.extras().vips; vips != (bpf.TcSctpVipList{}) {
			want[s.id] = vips
		}
	}
	comparison := rows.Comparison[uint32, bpf.TcSctpVipList]{
		Table: "sctp_vips", Map: t.arrays.SCTPVIPs.Table(), Want: want,
		Name: func(id uint32) string { return fmt.Sprintf("VIPs of service %d", id) },
	}
	return comparison.Check(repair)
}
