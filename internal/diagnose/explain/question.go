package explain

import (
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"

	"loxilb/internal/lb"
)

// Question is a packet, or a client and an endpoint.
type Question struct {
	From, To  netip.AddrPort // port 0: not given
	Protocol  lb.Protocol    // Reverse: 0 is any
	Interface string         // at which it arrives; "": the interface of the route to From
	Mark      uint32
	// ConnectionID is the connection ID of a QUIC packet; nil: not a QUIC packet, or without ID.
	ConnectionID []byte
	TEID         uint32 // of the packet's tunnel of GTP-U, which decides the port of From; 0: none
	Length       int    // of the IP packet; 0: as short as possible
	Reverse      bool   // To is an endpoint: find the services through which From reaches it
}

// anyPort is the default source port of a client.
const anyPort = 40000

// maxConnectionID is the length of the longest connection ID, in bytes (RFC 9000 section 17.2).
const maxConnectionID = 20

// Limits of the length of IP packets: at least the headers, and at most the size for which the
// kernel runs a program, which is a page minus its overhead.
const (
	minLength = 60
	maxLength = 3500
)

// Parse reads a question. An error is a *lb.FieldError.
func Parse(from, to, protocol, iface string) (*Question, error) {
	q := &Question{Interface: iface, Protocol: lb.TCP}
	var err error
	if protocol != "" {
		if q.Protocol, err = lb.ParseProtocol(protocol); err != nil {
			return nil, lb.NewFieldError("proto", protocol, "is not supported", "tcp, udp, sctp or icmp")
		}
	}
	if q.From, err = address("from", from); err != nil {
		return nil, err
	}
	q.To, err = address("to", to)
	return q, err
}

// ParseReverse parses a client and an endpoint, to ask which services connect them.
func ParseReverse(client, endpoint, protocol, iface string) (*Question, error) {
	q, err := Parse(client, endpoint, protocol, iface)
	if fe := (*lb.FieldError)(nil); err != nil {
		if asField(err, &fe) {
			switch fe.Field {
			case "from":
				fe.Field = "client"
			case "to":
				fe.Field = "endpoint"
			}
		}
		return nil, err
	}
	if protocol == "" {
		q.Protocol = 0
	}
	q.Reverse = true
	return q, nil
}

// address reads IP or IP:PORT, IPv6 with a port in brackets.
func address(field, s string) (netip.AddrPort, error) {
	const allowed = "IP or IP:PORT, IPv6 with a port in brackets"
	if s == "" {
		return netip.AddrPort{}, lb.NewFieldError(field, s, "is missing", allowed)
	}
	at, err := netip.ParseAddrPort(s)
	if err != nil {
		var a netip.Addr
		if a, err = netip.ParseAddr(trimBrackets(s)); err != nil {
			return netip.AddrPort{}, lb.NewFieldError(field, s, "is not an address", allowed)
		}
		at = netip.AddrPortFrom(a, 0)
	}
	switch a := at.Addr(); {
	case a.Zone() != "":
		return at, lb.NewFieldError(field, s, "has a zone", "an address without a zone, and the interface in its own field")
	case a.Is4In6():
		return at, lb.NewFieldError(field, s, "is an IPv4 address in IPv6", a.Unmap().String())
	}
	return at, nil
}

// SetConnectionID makes the packet one of QUIC, with a connection ID in hexadecimal; "": it stays
// as it is. protocol: as asked.
func (q *Question) SetConnectionID(text, protocol string) error {
	if text == "" {
		return nil
	}
	id, err := hex.DecodeString(text)
	if err != nil || len(id) > maxConnectionID {
		return lb.NewFieldError("connectionID", text, "is not a connection ID", "1 to "+strconv.Itoa(maxConnectionID)+" bytes, two hexadecimal digits each")
	}
	q.ConnectionID = id
	return q.implyUDP("connectionID", text, protocol)
}

// implyUDP sets the protocol to UDP, since a given field exists only there. text is the field's
// text, and protocol the one that was asked for.
func (q *Question) implyUDP(field, text, protocol string) error {
	switch {
	case protocol != "" && q.Protocol != lb.UDP:
		return lb.NewFieldError(field, text, "cannot be combined with proto "+protocol, "udp, which it implies")
	case q.Reverse:
		return lb.NewFieldError(field, text, "cannot be combined with client and endpoint", "from and to")
	}
	q.Protocol = lb.UDP
	return nil
}

// SetTEID makes the packet one of a tunnel of GTP-U, with a TEID in decimal or hexadecimal digits,
// by default to its port; "": it stays as it is. protocol: as asked.
func (q *Question) SetTEID(text, protocol string) error {
	if text == "" {
		return nil
	}
	digits, base := text, 10 // not 0, by which 010 is 8
	if hexadecimal, ok := strings.CutPrefix(strings.ToLower(text), "0x"); ok {
		digits, base = hexadecimal, 16
	}
	teid, err := strconv.ParseUint(digits, base, 32)
	if err != nil || teid == 0 {
		return lb.NewFieldError("teid", text, "is not a TEID", "1 to 4294967295, or hexadecimal as 0x12ab")
	}
	if err := q.implyUDP("teid", text, protocol); err != nil {
		return err
	}
	if len(q.ConnectionID) > 0 {
		return lb.NewFieldError("teid", text, "cannot be combined with a connection ID", "one of them")
	}
	q.TEID = uint32(teid)
	q.From = netip.AddrPortFrom(q.From.Addr(), lb.TunnelPort(q.TEID))
	if q.To.Port() == 0 {
		q.To = netip.AddrPortFrom(q.To.Addr(), lb.GTPPort)
	}
	return nil
}

func trimBrackets(s string) string {
	if len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']' {
		return s[1 : len(s)-1]
	}
	return s
}

// checkLength refuses an impossible length, before a packet of that length is made.
func (q *Question) checkLength() error {
	if q.Length != 0 && (q.Length < minLength || q.Length > maxLength) {
		return lb.NewFieldError("length", strconv.Itoa(q.Length), "is out of range", strconv.Itoa(minLength)+" to "+strconv.Itoa(maxLength))
	}
	return nil
}

// checkPacket refuses an impossible packet.
func (q *Question) checkPacket() error {
	switch {
	case !q.Protocol.Supported() && !q.Reverse:
		return lb.NewFieldError("proto", q.Protocol.String(), "is not supported", "tcp, udp, sctp or icmp")
	case q.From.Addr().Is4() != q.To.Addr().Is4():
		return lb.NewFieldError("to", q.To.Addr().String(), "has another IP version than "+q.From.Addr().String(), "two addresses of one version")
	}
	return nil
}
