package connections

import (
	"context"
	"fmt"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

const (
	// auditSample is the number of checked entries of a larger table: some milliseconds of
	// work.
	auditSample = 2048
	// auditShown bounds the reported differences.
	auditShown = 100
	nextHops   = 1 << 14 // HOPS of bpf/abi.h

	singleEntry = uint8(bpf.TcConnectionTraitCONN_RESTING | bpf.TcConnectionTraitCONN_ONE_WAY)
	hopFamily   = uint8(0x20) // HOP_FAMILY of bpf/abi.h
)

// Audit checks the consistency of connections: both directions have an entry of one known endpoint,
// and their next hops exist. It checks the sample with a number, which starts at a place of the
// table, or the whole table. It checks each finding twice. With repair, it ends connections whose
// client's entry is faulty; others end when they are silent.
func (t *Table) Audit(ctx context.Context, sample uint64, whole, repair bool) report.Compared {
	out := report.Compared{Table: "connections"}
	groups, err := t.shared.Conntrack.Groups()
	if err != nil {
		out.Err = err
		return out
	}
	entries, err := t.shared.Conntrack.Len()
	if err != nil {
		out.Err = err
		return out
	}
	first := 0
	if !whole && entries > auditSample {
		first = int(sample % uint64(groups))
	}
	look := func(k bpf.TcConnectionKey, r bpf.TcConnection) bool {
		if !whole && out.Rows >= auditSample || len(out.Differences) >= auditShown {
			return false
		}
		out.Rows++
		what, err := t.fault(k, &r)
		if err != nil {
			out.Err = err
			return false
		}
		if what != "" && repair && r.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) == 0 {
			out.Err = t.endSilently(k, r.Endpoint, wordOf(&r), &report.Ended{})
		}
		if what != "" {
			out.Differences = append(out.Differences, report.Difference{
				Table: out.Table, Row: connectionName(k), What: what,
				Fix: "loxicmd verify --repair ends the connection; else it ends when it has been silent for its idle timeout",
			})
		}
		return true
	}
	next, err := t.shared.Conntrack.EachFrom(ctx, first, look)
	if err == nil && next == 0 && first > 0 && out.Err == nil { // at the end: continue at the beginning
		_, err = t.shared.Conntrack.EachFrom(ctx, 0, look)
	}
	if out.Err == nil {
		out.Err = err
	}
	return out
}

func connectionName(k bpf.TcConnectionKey) string {
	return fmt.Sprintf("%s %s > %s", lb.Protocol(k.Protocol), bpf.AddrPort(k.Saddr, k.Sport), bpf.AddrPort(k.Daddr, k.Dport))
}

// fault describes the fault of an entry, if a second look confirms it; "": none.
func (t *Table) fault(k bpf.TcConnectionKey, r *bpf.TcConnection) (string, error) {
	what, err := t.faultOf(k, r)
	if what == "" || err != nil {
		return "", err
	}
	again, there, err := t.shared.Conntrack.Lookup(k)
	if err != nil || !there {
		return "", err
	}
	return t.faultOf(k, &again)
}

func (t *Table) faultOf(k bpf.TcConnectionKey, r *bpf.TcConnection) (string, error) {
	if r.Traits&singleEntry != 0 || isClosed(r.Flags) {
		return "", nil // it may be the only one
	}
	if _, known := t.tables.Owner(r.Endpoint); !known {
		return fmt.Sprintf("refers to endpoint row %d, which is unused", r.Endpoint), nil
	}
	if r.Way >= nextHops {
		return fmt.Sprintf("refers to next hop %d, and there are %d", r.Way, nextHops), nil
	}
	other := replyKey(k, r)
	if r.Hop&hopFamily != 0 {
		other.Protocol = uint8(lb.Protocol(other.Protocol).Translated())
	}
	peer, there, err := t.shared.Conntrack.Lookup(other)
	switch {
	case err != nil:
		return "", err
	case !there:
		return "has no entry for its other direction, " + connectionName(other), nil
	case peer.Endpoint != r.Endpoint:
		return fmt.Sprintf("is of endpoint row %d, and its other direction of row %d", r.Endpoint, peer.Endpoint), nil
	}
	return "", nil
}
