package kinds

import (
	"cmp"
	"math"
	"net/netip"
	"net/url"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
)

// BGPNeighbor registers BGP neighbors.
func BGPNeighbor() *Kind[bgp.Neighbor, v1.BgpNeighbor] {
	stored := asJSON(bgp.Neighbor.Key, bgp.Neighbor.Validate)
	stored.Max, stored.Plural = 1024, "BGP neighbors"
	stored.KeepHidden = bgp.Neighbor.KeepPassword
	return &Kind[bgp.Neighbor, v1.BgpNeighbor]{
		Words: Words{
			Name: BGPNeighborName, Document: "BGPNeighbor", Command: "bgpneighbor", Aliases: []string{"bgpnei", "bgpneigh"},
			List: "bgpNeiAttr", Exported: true, Verified: true,
		},
		Stored: stored,
		API: API[bgp.Neighbor, v1.BgpNeighbor]{
			Path: "/config/bgp/neigh", ObjectPath: "/{ip_address}", Key: neighborKey, Read: readNeighbor, Show: showNeighbor, KeepReason: keepOtherAS,
			Merge: mergeNeighbor,
			Peer:  func(n bgp.Neighbor) (string, netip.Addr) { return bgp.FieldNeighbor, n.Addr },
		},
		CLI: CLI[v1.BgpNeighbor]{
			Texts:        Texts{Singular: "a BGP neighbor", Plural: "BGP neighbors", Details: "prefixes and errors", Argument: "PEER", Sample: "10.0.0.2"},
			Name:         func(n *v1.BgpNeighbor) string { return cmp.Or(n.IpAddress, n.Interface) },
			CustomDelete: true, // with the AS
			Columns:      neighborColumns(),
		},
	}
}

// keepOtherAS keeps a neighbor of another AS: a client that deletes an old neighbor after creating
// its successor at the same address must not delete the successor.
func keepOtherAS(n bgp.Neighbor, parameters url.Values) string {
	want, asn := parameters.Get("remoteAs"), strconv.FormatUint(uint64(n.ASN), 10)
	if want == "" || want == "0" || want == asn {
		return ""
	}
	return "its AS is " + asn + ", not " + lb.Printable(want)
}

// mergeNeighbor keeps the stored password if the body has none: clients of the existing loxilb do
// not know the member, and must not remove the password. An empty member removes it.
func mergeNeighbor(stored, posted bgp.Neighbor, body *v1.BgpNeighbor) bgp.Neighbor {
	if body.Password == nil {
		posted.Password = stored.Password
	}
	return posted
}

func readNeighbor(body *v1.BgpNeighbor) (n bgp.Neighbor, err error) {
	n = bgp.Neighbor{
		Interface: body.Interface, Passive: body.Passive, NoGracefulRestart: body.NoGracefulRestart,
	}
	if body.Password != nil {
		n.Password = *body.Password
	}
	if body.IpAddress != "" {
		if n.Addr, err = bgp.ParseNeighborAddr(body.IpAddress); err != nil {
			return n, err
		}
	}
	if n.ASN, err = asnOf(bgp.FieldRemoteASN, body.RemoteAs); err != nil {
		return n, err
	}
	if n.Port, err = bgpPort("remotePort", body.RemotePort); err != nil {
		return n, err
	}
	if body.Source != "" {
		if n.Source, err = lb.ParseAddr(bgp.FieldSource, body.Source); err != nil {
			return n, err
		}
	}
	if n.Multihop, err = byteOf(bgp.FieldMultihop, body.MultihopTTL); err != nil {
		return n, err
	}
	if body.SetMultiHop && n.Multihop == 0 {
		n.Multihop = bgp.DefaultMultihop
	}
	if n.Hold, err = timeOf(bgp.FieldHold, body.HoldTime); err != nil {
		return n, err
	}
	if n.Keepalive, err = timeOf(bgp.FieldKeepalive, body.KeepaliveTime); err != nil {
		return n, err
	}
	if n.Retry, err = timeOf(bgp.FieldRetry, body.ConnectRetry); err != nil || body.Bfd == nil {
		return n, err
	}
	if body.Bfd.Interval == "" {
		return n, lb.NewFieldError(bgp.FieldInterval, "", "is missing", "10ms to 1m, or no bfd")
	}
	if n.BFD.Interval, err = timeOf(bgp.FieldInterval, body.Bfd.Interval); err != nil {
		return n, err
	}
	n.BFD.Multiplier, err = byteOf(bgp.FieldMultiplier, body.Bfd.Multiplier)
	if n.BFD.Multiplier == bgp.DefaultMultiplier {
		n.BFD.Multiplier = 0
	}
	return n, err
}

func byteOf(field string, n int) (uint8, error) {
	if n < 0 || n > math.MaxUint8 {
		return 0, lb.NewFieldError(field, strconv.Itoa(n), "is out of range", "1 to 255")
	}
	return uint8(n), nil
}

// showNeighbor hides the password.
func showNeighbor(n *bgp.Neighbor) *v1.BgpNeighbor {
	out := &v1.BgpNeighbor{
		Interface: n.Interface, RemoteAs: int64(n.ASN), RemotePort: int(n.Port), SetMultiHop: n.Multihop > 0, MultihopTTL: int(n.Multihop),
		HoldTime: TimeText(n.Hold), KeepaliveTime: TimeText(n.Keepalive), ConnectRetry: TimeText(n.Retry),
		Passive: n.Passive, NoGracefulRestart: n.NoGracefulRestart,
	}
	if n.Addr.IsValid() {
		out.IpAddress = n.Addr.String()
	}
	if n.Source.IsValid() {
		out.Source = n.Source.String()
	}
	if n.Password != "" {
		out.Password = new(bgp.HiddenPassword)
	}
	if n.BFD != (bgp.BFD{}) {
		out.Bfd = &v1.BgpBfd{Interval: TimeText(n.BFD.Interval), Multiplier: int(n.BFD.Multiplier)}
	}
	return out
}

// neighborColumns has the contract's columns, and prefixes and errors.
func neighborColumns() []Column[*v1.BgpNeighbor] {
	return []Column[*v1.BgpNeighbor]{
		{Header: "Peer", Cell: func(n *v1.BgpNeighbor) string { return cmp.Or(n.IpAddress, n.Interface) }},
		{Header: "AS", Cell: func(n *v1.BgpNeighbor) string { return strconv.FormatInt(n.RemoteAs, 10) }},
		{Header: "UP/Down", Cell: func(n *v1.BgpNeighbor) string { return orDash(n.Updowntime) }},
		{Header: "State", Cell: func(n *v1.BgpNeighbor) string { return orDash(n.State) }},
		{Header: "Sent", Wide: true, Cell: func(n *v1.BgpNeighbor) string { return strconv.Itoa(n.PrefixesSent) }},
		{Header: "Received", Wide: true, Cell: func(n *v1.BgpNeighbor) string { return strconv.Itoa(n.PrefixesReceived) }},
		{Header: "Flaps", Wide: true, Cell: func(n *v1.BgpNeighbor) string { return strconv.FormatUint(n.Flaps, 10) }},
		{Header: "BFD", Wide: true, Cell: func(n *v1.BgpNeighbor) string { return orDash(n.BfdState) }},
		{Header: "Last Error", Wide: true, Cell: func(n *v1.BgpNeighbor) string { return orDash(n.LastError) }},
	}
}
