// Package connections lists, grows and sweeps the connection table. Sweeping frees the rows of
// ended connections, and then the rows of removed endpoints.
package connections

import (
	"context"
	"net/netip"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/conntrack"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// Connections calls yield for each direction of each connection, in any order, until it returns
// false. The table changes meanwhile: a connection that lives throughout is listed, others may or
// may not be.
func (t *Table) Connections(ctx context.Context, yield func(report.Connection) bool) error {
	_, err := t.ConnectionsFrom(ctx, 0, report.ConnectionQuery{}, yield)
	return err
}

// ConnectionsFrom is Connections from a position on, for selected connections and perhaps others.
// It returns the position at which yield returned false, so the next call begins with that
// connection; 0: the end. Positions do not depend on the selection.
func (t *Table) ConnectionsFrom(ctx context.Context, from int, query report.ConnectionQuery, yield func(report.Connection) bool) (next int, err error) {
	each := t.shared.Conntrack.EachRowFrom
	if !query.All() {
		s, some, err := t.newSearch(&query)
		if err != nil || !some {
			return 0, err
		}
		each = s.each
	}
	now, err := t.clock.now()
	if err != nil {
		return 0, err
	}
	return each(ctx, from, func(r *bpf.TcTableRow) bool {
		c, ok := t.connection(r.Key, r.Connection)
		if began, known := conntrack.Began(r); known {
			c.Age = t.clock.span(now - min(now, began))
		}
		c.Idle = t.clock.span(uint64(max(0, int32(uint32(now)-r.Connection.Seen))))
		return !ok || yield(c)
	})
}

// connection describes an entry. It returns false if the entry has expired and waits for the sweep.
func (t *Table) connection(k bpf.TcConnectionKey, r bpf.TcConnection) (report.Connection, bool) {
	c := report.Connection{
		Protocol: lb.Protocol(k.Protocol),
		Src:      bpf.AddrPort(k.Saddr, k.Sport),
		Dst:      bpf.AddrPort(k.Daddr, k.Dport),
		Reply:    r.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) != 0,
		NewSrc:   bpf.AddrPort(r.Saddr, r.Sport),
		NewDst:   bpf.AddrPort(r.Daddr, r.Dport),
		Direct:   r.Traits&uint8(bpf.TcConnectionTraitCONN_ONE_WAY) != 0,
		State:    stateName(k.Protocol, r.Flags),
		Traffic:  report.Traffic{Packets: r.Packets, Bytes: r.Bytes},
	}
	c.Endpoint = c.NewDst
	if c.Reply {
		c.Endpoint = c.Src
	}
	c.ConfiguredEndpoint = c.Endpoint
	if o, ok := t.tables.Owner(r.Endpoint); ok {
		if c.Direct {
			c.Endpoint = netip.AddrPortFrom(o.Endpoint.Addr(), c.Dst.Port())
		}
		c.ConfiguredEndpoint, c.Weight, c.Service = o.Endpoint, o.Weight, o.Service
	}
	return c, true
}

// stateName returns the name of a connection's state in the contract.
func stateName(protocol, flags uint8) string {
	has := func(f bpf.TcConnectionFlag) bool { return flags&uint8(f) != 0 }
	return lb.Protocol(protocol).State(lb.ConnectionEvents{
		Established: has(bpf.TcConnectionFlagCONN_FIN_CLIENT_ACKED),
		Replied:     has(bpf.TcConnectionFlagCONN_REPLIED),
		Assured:     has(bpf.TcConnectionFlagCONN_ASSURED),
		Reset:       has(bpf.TcConnectionFlagCONN_RESET),
		FinClient:   has(bpf.TcConnectionFlagCONN_FIN_CLIENT),
		FinEndpoint: has(bpf.TcConnectionFlagCONN_FIN_ENDPOINT),
		FinsAcked:   has(bpf.TcConnectionFlagCONN_FIN_CLIENT_ACKED) && has(bpf.TcConnectionFlagCONN_FIN_ENDPOINT_ACKED),
	})
}
