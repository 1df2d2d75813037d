package lb

import (
	"net/netip"
	"time"
)

// ConnectionEvent is what has become of a connection, as `loxicmd get ct -w` shows it.
type ConnectionEvent struct {
	Time     time.Time
	Act      string // opened, assured, closing, ended
	Protocol Protocol
	Client   netip.AddrPort
	VIP      netip.AddrPort
	Source   netip.AddrPort // that the endpoint sees; the client, unless the mode or the endpoint asks for another
	Endpoint netip.AddrPort
	Service  string  // the service's name, or its key when it has none
	Reason   string  // why it has ended: closed, reset, silent, removed (its endpoint was), replaced
	By       string  // who has begun to close it, or has reset it: client, endpoint; of an end after both have closed: both
	In, Out  Traffic // so far; Out is counted at the end alone
	OneOf    int     // of so many connections one is told of at present
}

// Untold is what a watcher was not told, since it began.
type Untold struct {
	Sampled uint64 // events of connections that were left out, as it fell behind
	Lost    uint64 // events for which there was no room at all
}
