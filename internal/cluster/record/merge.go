package record

import (
	"cmp"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// Merge combines two copies with the same client and VIP. Merging copies of one connection is
// commutative and idempotent. Of two different connections, the later one remains.
// bpf/cluster/put.h does the same to the connection table.
func Merge(a, b report.ConnectionCopy) report.ConnectionCopy {
	if !sameConnection(&a, &b) {
		if isLater(&a, &b) {
			return a
		}
		return b
	}
	if a.Protocol == lb.SCTP {
		a.Numbers = tagsOf(&a, &b)
		a.Flags |= b.Flags
		a.Idle = min(a.Idle, b.Idle)
		return a
	}
	a.Flags |= b.Flags
	a.Idle = min(a.Idle, b.Idle)
	a.Numbers = report.TCPNumbers{
		Sent: later(a.Numbers.Sent, b.Numbers.Sent), Acked: later(a.Numbers.Acked, b.Numbers.Acked),
		ReplySent: later(a.Numbers.ReplySent, b.Numbers.ReplySent), ReplyAcked: later(a.Numbers.ReplyAcked, b.Numbers.ReplyAcked),
	}
	return a
}

// tagsOf returns the tags of an association from the copy with the later packet, since a client may
// have restarted in between. All copies have tags, since they begin with INIT ACK.
func tagsOf(a, b *report.ConnectionCopy) report.TCPNumbers {
	x, y := a.Numbers, b.Numbers
	if cmp.Or(cmp.Compare(a.Idle, b.Idle), cmp.Compare(y.Acked, x.Acked), cmp.Compare(y.ReplyAcked, x.ReplyAcked)) > 0 {
		return y
	}
	return x
}

// sameConnection reports whether two copies belong to one connection: the next connection from a
// client's port has another generation.
func sameConnection(a, b *report.ConnectionCopy) bool {
	return a.Generation == b.Generation && a.Source == b.Source && a.Endpoint == b.Endpoint && a.Traits == b.Traits && a.Hop == b.Hop && a.Mark == b.Mark
}

// isLater reports whether a belongs to a later connection than b: it was used later, or at the same
// time with later numbers. Otherwise any order will do on which all nodes agree.
func isLater(a, b *report.ConnectionCopy) bool {
	if a.Idle != b.Idle {
		return a.Idle < b.Idle
	}
	if a.Numbers.Sent != b.Numbers.Sent {
		return later(a.Numbers.Sent, b.Numbers.Sent) == a.Numbers.Sent
	}
	return cmp.Or(cmp.Compare(a.Generation, b.Generation), a.Source.Compare(b.Source), a.Endpoint.Compare(b.Endpoint),
		cmp.Compare(a.Traits, b.Traits), cmp.Compare(a.Hop, b.Hop), cmp.Compare(a.Mark, b.Mark)) > 0
}

// later returns the later of two numbers that wrap around (RFC 1982).
func later(a, b uint32) uint32 {
	if d := int32(a - b); d > 0 || d == -1<<31 && a > b {
		return a
	}
	return b
}
