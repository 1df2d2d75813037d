package record

import (
	"net/netip"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// tuple is the key of a connection.
type tuple struct {
	client, vip netip.AddrPort
	protocol    lb.Protocol
}

// Coalesce merges copies of the same connection, in place, and returns what remains. A short
// connection has five within milliseconds, and peers need only their combined content.
func Coalesce(list []report.ConnectionCopy) []report.ConnectionCopy {
	if len(list) < 2 {
		return list
	}
	at := make(map[tuple]int, len(list))
	kept := list[:0]
	for _, c := range list {
		key := tuple{c.Client, c.VIP, c.Protocol}
		if i, ok := at[key]; ok && sameConnection(&kept[i], &c) {
			kept[i] = Merge(kept[i], c)
			continue
		}
		at[key] = len(kept)
		kept = append(kept, c)
	}
	return kept
}
