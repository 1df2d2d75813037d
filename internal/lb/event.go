package lb

import (
	"net/netip"
	"time"
)

// ConnectionEvent is an event of a connection, as `loxicmd get ct -w` shows it.
type ConnectionEvent struct {
	Time     time.Time
	Act      string // opened, assured, closing, ended
	Protocol Protocol
	Client   netip.AddrPort
	VIP      netip.AddrPort
	Source   netip.AddrPort // as the endpoint sees it; the client, unless the mode or the endpoint requires another address
	Endpoint netip.AddrPort
	Service  string  // the service's name, or its key if it has none
	Reason   string  // why it has ended: closed, reset, silent, removed (its endpoint was), replaced
	By       string  // which side began to close it, or reset it: client, endpoint; both: an end after both have closed
	In, Out  Traffic // so far; Out is counted at the end alone
	OneOf    int     // currently, one connection of this many is reported
}

// Untold counts events that a watcher did not get since it began.
type Untold struct {
	Sampled uint64 // events left out by sampling, as the watcher fell behind
	Lost    uint64 // events for which there was no room at all
}
