package connections

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// search finds selected entries of the table in the kernel. Several searches may run, a slice each
// in turn.
type search struct {
	*Table
	filter    bpf.SweepFindFilter
	endpoints *tables.EndpointSet // nil: any
	found     []foundRow          // by the last slice
}

// foundRow is struct found_row of bpf/abi.h.
type foundRow struct {
	row   bpf.TcTableRow
	place uint64
}

// newSearch makes a search. It returns false if no connection can match.
func (t *Table) newSearch(query *report.ConnectionQuery) (*search, bool, error) {
	s := &search{Table: t, filter: filterOf(query)}
	if query.MatchEndpoint == nil {
		return s, true, nil
	}
	s.filter.ByEndpoint = 1
	var err error
	s.endpoints, err = t.tables.WithConnections(func(o *tables.Owner) bool { return query.MatchEndpoint(o.Service, o.Endpoint) })
	return s, s.endpoints != nil, err
}

// filterOf converts the search to the program's filter, except for the endpoints.
func filterOf(query *report.ConnectionQuery) (f bpf.SweepFindFilter) {
	f.Ports = [2]uint16{0, math.MaxUint16}
	if query.Ports != [2]uint16{} {
		f.Ports = query.Ports
	}
	if query.Client.IsValid() {
		f.Client, f.ClientMask = bpf.Addr(query.Client.Addr()), bpf.Mask(query.Client)
	}
	if query.VIP.IsValid() {
		f.Vip, f.VipMask = bpf.Addr(query.VIP), bpf.Mask(netip.PrefixFrom(query.VIP, query.VIP.BitLen()))
	}
	if query.Endpoint.IsValid() {
		f.Endpoint, f.EndpointMask = bpf.Addr(query.Endpoint), bpf.Mask(netip.PrefixFrom(query.Endpoint, query.Endpoint.BitLen()))
	}
	kinds := [...]lb.Protocol{lb.TCP, lb.ICMP, lb.SCTP, lb.UDP} // as FIND_PROTOCOLS has them
	words := len(f.Flags) / len(kinds)
	for kind, protocol := range kinds {
		for flags := range math.MaxUint8 + 1 {
			if query.Requests && flags&int(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) != 0 {
				continue
			}
			if query.State == "" || query.State == stateName(uint8(protocol), uint8(flags)) {
				f.Flags[kind*words+flags/64] |= 1 << (flags % 64)
			}
		}
	}
	return f
}

// each yields the matches from a row on, and returns the row at which yield returned false, or 0 at
// the end.
func (s *search) each(ctx context.Context, from int, yield func(*bpf.TcTableRow) bool) (next int, err error) {
	if from > math.MaxUint32 {
		return 0, nil
	}
	for row := uint32(from); ; {
		after, err := s.slice(row)
		if err != nil {
			return int(row), err
		}
		for i := range s.found {
			if f := &s.found[i]; !yield(&f.row) {
				return int(f.place), nil
			}
		}
		if after == row {
			return 0, nil // the table has no such row
		}
		if row = after; ctx.Err() != nil {
			return int(row), ctx.Err()
		}
	}
}

// slice searches from a row on, and returns the next one.
func (s *search) slice(row uint32) (next uint32, err error) {
	s.finding.Lock()
	defer s.finding.Unlock()
	p := s.programs
	if s.searching != s {
		err := p.findWanted.Set(s.filter)
		if s.endpoints != nil {
			err = errors.Join(err, p.findEndpoints.Set(*s.endpoints))
		}
		if err != nil {
			return row, fmt.Errorf("write the search's filter: %w", err)
		}
		s.searching = s
	}
	s.found = s.found[:0]
	if next, err = s.runMarked(findRows, row); err != nil {
		return row, fmt.Errorf("search connections: %w", err)
	}
	var record ringbuf.Record
	for {
		if err := p.rows.ReadInto(&record); errors.Is(err, os.ErrDeadlineExceeded) {
			return next, nil
		} else if err != nil {
			return row, fmt.Errorf("read connections: %w", err)
		}
		var f foundRow
		if len(record.RawSample) < int(unsafe.Sizeof(f)) {
			return row, fmt.Errorf("read connections: one has %d bytes, not %d", len(record.RawSample), unsafe.Sizeof(f))
		}
		copy((*[unsafe.Sizeof(f)]byte)(unsafe.Pointer(&f))[:], record.RawSample)
		s.found = append(s.found, f)
	}
}

// Tracked is one direction of a connection, and its next TCP numbers.
type Tracked struct {
	report.Connection
	Seq, Ack uint32 // of the next segment
	Tag      uint32 // SCTP: of packets in this direction
}

// Lookup finds the connection of packets between two addresses, expired or not.
func (t *Table) Lookup(protocol lb.Protocol, from, to netip.AddrPort) (*Tracked, error) {
	key := bpf.TcConnectionKey{
		Saddr: bpf.Addr(from.Addr()), Daddr: bpf.Addr(to.Addr()), Sport: bpf.Port(from.Port()), Dport: bpf.Port(to.Port()), Protocol: uint8(protocol),
	}
	row, there, err := t.shared.Conntrack.Lookup(key)
	if err != nil || !there {
		return nil, err
	}
	c, ok := t.connection(key, row)
	if !ok {
		return nil, nil
	}
	found := &Tracked{Connection: c, Seq: row.SeqEnd, Ack: row.Ack, Tag: row.Ack}
	other, there, err := t.shared.Conntrack.Lookup(bpf.TcConnectionKey{Saddr: row.Daddr, Daddr: row.Saddr, Sport: row.Dport, Dport: row.Sport, Protocol: key.Protocol})
	if there {
		found.Ack = other.SeqEnd
	}
	return found, err
}
