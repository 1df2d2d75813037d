package report

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"loxilb/internal/lb"
)

// Connection is one direction of a tracked connection, as `loxicmd get ct` lists it.
type Connection struct {
	Protocol           lb.Protocol
	Src, Dst           netip.AddrPort // addresses of the packets as they arrive
	Reply              bool           // endpoint to client
	Direct             bool           // the endpoint answers the client directly, without an entry for the other direction
	NewSrc             netip.AddrPort // addresses of the packets as they leave
	NewDst             netip.AddrPort
	Endpoint           netip.AddrPort
	ConfiguredEndpoint netip.AddrPort // its address and port in the service: of a range of ports, the first one
	Weight             uint16
	State              string // one of ConnectionStates
	Traffic            Traffic
	Service            string        // the service's name, or its key if it has none
	Age                time.Duration // since its first packet; 0: unknown
	Idle               time.Duration // since the last packet of this direction
}

// SourceName returns the Service of connections translated by a firewall rule.
func SourceName(a netip.Addr) string { return "snat " + a.String() }

// VIPAddr returns the address that the client talks to: replies carry it once they are translated.
func (c *Connection) VIPAddr() netip.AddrPort {
	if c.Reply {
		return c.NewSrc
	}
	return c.Dst
}

// ClientAddr returns the client's address: replies go there once they are translated.
func (c *Connection) ClientAddr() netip.AddrPort {
	if c.Reply {
		return c.NewDst
	}
	return c.Src
}

// BelongsTo reports whether the connection belongs to the service with this key and these VIPs. It
// compares the client's destination, so it also finds connections of endpoints and services that no
// longer exist. An unspecified VIP stands for every address of its family.
func (c *Connection) BelongsTo(k lb.Key, vips []netip.Addr) bool {
	at := c.VIPAddr()
	isVIP := func(a netip.Addr) bool {
		return a == at.Addr() || a.IsUnspecified() && a.Is4() == at.Addr().Is4()
	}
	if !k.Protocol.Includes(c.Protocol) || !isVIP(k.VIP) && !slices.ContainsFunc(vips, isVIP) {
		return false
	}
	return !k.Protocol.HasPorts() || at.Port() >= k.Port && at.Port() <= max(k.Port, k.PortMax)
}

// ConnectionStates returns the existing loxilb's words for the states of a connection, by protocol.
func ConnectionStates() (all []string) {
	for _, p := range lb.Protocols() {
		all = append(all, p.Traits().States...)
	}
	return all
}

// ParseConnectionState parses a word of ConnectionStates, or the equivalent word of conntrack, ss
// or netstat.
func ParseConnectionState(text string) (string, error) {
	word := strings.ReplaceAll(strings.ToLower(text), "_", "-")
	switch word {
	case "established", "estab":
		word = "est"
	case "syn-sent":
		word = "sync-sent"
	case "syn-recv", "syn-received":
		word = "sync-ack"
	case "close":
		word = "closed"
	}
	if !slices.Contains(ConnectionStates(), word) {
		return "", lb.NewFieldError("state", text, "is not a state of a connection"+lb.DidYouMean(word, ConnectionStates()), strings.Join(ConnectionStates(), ", "))
	}
	return word, nil
}

// ConnectionEvent is an event of a connection, as `loxicmd get ct -w` shows it.
type ConnectionEvent struct {
	Time     time.Time
	Act      string // opened, assured, closing, ended
	Protocol lb.Protocol
	Client   netip.AddrPort
	VIP      netip.AddrPort
	Source   netip.AddrPort // as the endpoint sees it; the client, unless the mode or the endpoint requires another address
	Endpoint netip.AddrPort
	Service  string  // the service's name, or its key if it has none
	Reason   string  // why it has ended: closed, reset, silent, removed (its endpoint was), replaced
	By       string  // which side began to close it, or reset it: client, endpoint; both: an end after both have closed
	In, Out  Traffic // so far; Out is counted at the end alone
	OneOf    int     // sampling rate: one of this many connections is reported
}

// Omitted counts events that a watcher did not get since it began.
type Omitted struct {
	Sampled uint64 // events omitted by sampling, since the watcher was too slow
	Lost    uint64 // events for which there was no room
}

// ConnectionQuery selects connections for a search. The data path cannot filter exactly: the result
// may include others. The zero value selects all.
type ConnectionQuery struct {
	Client        netip.Prefix                                 // zero: any
	VIP           netip.Addr                                   // destination of the client; zero: any
	Ports         [2]uint16                                    // of the VIP, from and to; zero: any
	Endpoint      netip.Addr                                   // zero: any
	State         string                                       // one of ConnectionStates; "": any
	Requests      bool                                         // without the replies
	MatchEndpoint func(service string, at netip.AddrPort) bool // selects endpoints as configured in their services; nil: any
}

// All reports whether everything is selected.
func (s *ConnectionQuery) All() bool {
	return s.Client == netip.Prefix{} && s.VIP == netip.Addr{} && s.Ports == [2]uint16{} && s.Endpoint == netip.Addr{} && s.State == "" && !s.Requests && s.MatchEndpoint == nil
}
