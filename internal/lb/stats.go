package lb

import "net/netip"

// Traffic counts packets and bytes. Bytes are those of the IP packet (header included, link layer not), a GSO
// packet counting as the one packet that it is at the hook.
type Traffic struct{ Packets, Bytes uint64 }

// EndpointStats are the counters of one endpoint of one service, since it was added.
type EndpointStats struct {
	Connections uint64  // made, ever
	Active      uint64  // in the table now
	In          Traffic // client to endpoint
	Out         Traffic // endpoint to client
}

// ServiceStats are the counters of a service. Its sums include endpoints that have been removed since.
type ServiceStats struct {
	EndpointStats
	Endpoints  []EndpointStats // in the order of Service.Endpoints
	NoEndpoint uint64          // packets refused because no endpoint takes new connections
	Refused    uint64          // packets refused because the connection table was full
}

// Pressure is how the data path keeps made-up clients out.
type Pressure struct {
	Challenged   uint64 // SYNs of clients that were not known
	Answered     uint64 // challenges
	KnownClients uint64 // addresses, of IPv6 networks of 64 bits
}

// Connection is one direction of a tracked connection, as `loxicmd get ct` lists it.
type Connection struct {
	Protocol Protocol
	Src, Dst netip.AddrPort // of the packets as they arrive
	Reply    bool           // endpoint to client
	Direct   bool           // the endpoint answers the client directly: there is no other direction
	NewSrc   netip.AddrPort // of the packets as they leave
	NewDst   netip.AddrPort
	Endpoint netip.AddrPort
	Weight   uint16
	State    string // closed, sync-sent, sync-ack, est, h/e, closed-wait, fini; udp-uni, udp-est; req-sent, bidir (ICMP)
	Traffic  Traffic
	Service  string // the service's name, or its key when it has none
}
