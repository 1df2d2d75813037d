package kinds

import (
	"cmp"
	"math"
	"strconv"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
)

// Names of kinds of BGP in messages and journals.
const (
	BGPSpeakerName     = "bgp"
	BGPNeighborName    = "bgpneighbor"
	BGPSetName         = "bgpset"
	BGPPolicyName      = "bgppolicy"
	BGPApplicationName = "bgpapply"
)

// BGPSpeaker registers this node as a BGP speaker.
func BGPSpeaker() *Kind[bgp.Speaker, v1.BgpSpeaker] {
	return &Kind[bgp.Speaker, v1.BgpSpeaker]{
		Words: Words{
			Name: BGPSpeakerName, Document: "BGP", Command: "bgp", List: "bgpGlobalAttr", Exported: true, Verified: true,
		},
		Stored: asJSON(bgp.Speaker.Key, bgp.Speaker.Validate),
		API: API[bgp.Speaker, v1.BgpSpeaker]{
			Path: "/config/bgp/global", OnlyKey: bgp.SpeakerKey, Read: readSpeaker, Show: showSpeaker,
		},
		CLI: CLI[v1.BgpSpeaker]{
			Texts: Texts{Singular: "this node as a BGP speaker", Plural: "the BGP speaker", Details: "options", Create: " --asn=65000 --router-id=10.0.0.1"},
			Name:  func(*v1.BgpSpeaker) string { return bgp.SpeakerKey },
			Set:   func(*v1.BgpSpeaker, string) {},
			Flags: []Flag[*v1.BgpSpeaker]{
				{Name: "asn", Usage: "AS number of this node, up to 4294967295", Required: true, Set: func(b *v1.BgpSpeaker, value string) (err error) {
					b.LocalAs, err = ParseASN("asn", value)
					return err
				}},
				{Name: "router-id", Usage: "an IPv4 address that no other speaker has as its ID; none: an address of this node", Set: func(b *v1.BgpSpeaker, value string) error {
					b.RouterId = value
					return nil
				}},
				{Name: "listen-port", Usage: "TCP port to listen at; 0 is 179", Set: func(b *v1.BgpSpeaker, value string) (err error) {
					b.ListenPort, err = strconv.Atoi(value)
					return err
				}},
				{Name: "graceful-restart", Usage: "how long neighbors keep routes while the daemon restarts, such as 120s (default: not at all)", Set: func(b *v1.BgpSpeaker, value string) error {
					b.GracefulRestart = v1.Duration(value)
					return nil
				}},
				{Name: "install", Usage: "add routes that neighbors announce to the kernel's main table", Switch: true, Set: func(b *v1.BgpSpeaker, value string) (err error) {
					b.Install, err = strconv.ParseBool(value)
					return err
				}},
				{Name: "max-prefixes", Usage: "end the session with a neighbor that announces more prefixes of an IP version; 0 is 50000", Set: func(b *v1.BgpSpeaker, value string) (err error) {
					b.MaxPrefixes, err = strconv.ParseInt(value, 10, 64)
					return err
				}},
				{Name: "next-hop-self", Usage: "pass on routes to neighbors of the same AS with this node as next hop", Switch: true, Set: func(b *v1.BgpSpeaker, value string) (err error) {
					b.SetNextHopSelf, err = strconv.ParseBool(value)
					return err
				}},
			},
			Columns: []Column[*v1.BgpSpeaker]{
				{Header: "AS", Cell: func(b *v1.BgpSpeaker) string { return strconv.FormatInt(b.LocalAs, 10) }},
				{Header: "Router ID", Cell: func(b *v1.BgpSpeaker) string { return orDash(b.RouterId) }},
				{Header: "Port", Cell: func(b *v1.BgpSpeaker) string { return strconv.Itoa(cmp.Or(b.ListenPort, bgp.DefaultPort)) }},
				{Header: "Graceful Restart", Wide: true, Cell: func(b *v1.BgpSpeaker) string { return orDash(string(b.GracefulRestart)) }},
				{Header: "Installs Routes", Wide: true, Cell: func(b *v1.BgpSpeaker) string { return strconv.FormatBool(b.Install) }},
				{Header: "Next Hop Self", Wide: true, Cell: func(b *v1.BgpSpeaker) string { return strconv.FormatBool(b.SetNextHopSelf) }},
			},
		},
	}
}

func readSpeaker(body *v1.BgpSpeaker) (s bgp.Speaker, err error) {
	s.NextHopSelf, s.Install = body.SetNextHopSelf, body.Install
	if s.ASN, err = asnOf(bgp.FieldASN, body.LocalAs); err != nil {
		return s, err
	}
	if body.RouterId != "" {
		if s.RouterID, err = lb.ParseAddr(bgp.FieldRouterID, body.RouterId); err != nil {
			return s, err
		}
	}
	if s.Port, err = bgpPort("listenPort", body.ListenPort); err != nil {
		return s, err
	}
	if s.MaxPrefixes, err = uint32Of("maxPrefixes", body.MaxPrefixes); err != nil {
		return s, err
	}
	if s.MaxPrefixes == bgp.DefaultMaxPrefixes {
		s.MaxPrefixes = 0
	}
	s.GracefulRestart, err = timeOf(bgp.FieldGracefulRestart, body.GracefulRestart)
	return s, err
}

func showSpeaker(s *bgp.Speaker) *v1.BgpSpeaker {
	out := &v1.BgpSpeaker{
		LocalAs: int64(s.ASN), SetNextHopSelf: s.NextHopSelf, ListenPort: int(s.Port), GracefulRestart: TimeText(s.GracefulRestart),
		Install: s.Install, MaxPrefixes: int64(s.MaxPrefixes),
	}
	if s.RouterID.IsValid() {
		out.RouterId = s.RouterID.String()
	}
	return out
}

// asnOf returns an AS number of the API.
func asnOf(field string, n int64) (uint32, error) {
	if n < 1 || n > math.MaxUint32 {
		return 0, lb.NewFieldError(field, strconv.FormatInt(n, 10), "is not an AS number", "1 to 4294967295")
	}
	return uint32(n), nil
}

// ParseASN reads an AS number for the API.
func ParseASN(field, value string) (int64, error) {
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return 0, lb.NewFieldError(field, value, "is not an AS number", "1 to 4294967295")
	}
	return int64(n), nil
}

// bgpPort returns a port of the API; 0 is BGP's port.
func bgpPort(field string, n int) (uint16, error) {
	switch {
	case n == bgp.DefaultPort:
		return 0, nil
	case n < 0 || n > math.MaxUint16:
		return 0, lb.NewFieldError(field, strconv.Itoa(n), "is not a port", "1 to 65535, or 0 for 179")
	}
	return uint16(n), nil
}

// timeOf returns a time of the API; "" is none.
func timeOf(field string, text v1.Duration) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := lb.ParseDuration(string(text))
	if err != nil {
		return 0, lb.NewFieldError(field, string(text), "is not a time", "a number of seconds, or with units, such as 90s or 100ms")
	}
	return d, nil
}

// TimeText returns a time as timeOf reads it.
func TimeText(d time.Duration) v1.Duration {
	if d == 0 {
		return ""
	}
	if d%time.Second == 0 {
		return v1.Duration(strconv.FormatInt(int64(d/time.Second), 10) + "s")
	}
	return v1.Duration(d.String())
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
