package mirror

import (
	"bytes"
	"encoding/binary"
	"net"

	"golang.org/x/sys/unix"

	"loxilb/internal/event"
	"loxilb/internal/kernel/netdev/netlink"
)

// Link is a network interface as the data path needs to see it.
type Link struct {
	Index  int
	Name   string
	MAC    net.HardwareAddr // empty where the link has no Ethernet header
	MTU    int              // bytes, without the Ethernet header
	Up     bool             // administratively up
	Type   uint16           // ARPHRD_*: 1 is Ethernet, 0xfffe none
	Kind   string           // "veth", "bridge", ...; empty for hardware
	Bus    string           // of the device that the link is: "pci", "virtio", ...; empty for links of software alone
	Master int              // index of its bridge, bond or VRF; 0: none

	// PeerIndex is the index of the other end of a veth, or of the link below a stacked one, in its
	// own namespace; 0: none.
	PeerIndex int
	// PeerElsewhere reports that PeerIndex is in another namespace: for a veth, bpf_redirect_peer
	// is possible.
	PeerElsewhere bool

	Flags uint32 // IFF_*

	// Generation distinguishes links that had the same index in sequence: an attachment to one does
	// not exist at the next. After lost messages it changes if the link looks different.
	Generation uint64

	carrierChanges  uint32 // since the link was made
	offloadsChanged bool   // the message reports a change of the link's offloads; it does not name them
}

// Loopback reports whether the link is lo.
func (l Link) Loopback() bool { return l.Flags&unix.IFF_LOOPBACK != 0 }

// Ethernet reports whether packets of the link start with an Ethernet header.
func (l Link) Ethernet() bool { return l.Type == unix.ARPHRD_ETHER }

// Running reports whether the link is up and has a carrier.
func (l Link) Running() bool { return l.Up && l.Flags&unix.IFF_RUNNING != 0 }

// Event returns an event of the link, with its state.
func (l Link) Event(a event.Action) event.Link {
	state := "down"
	switch {
	case l.Running():
		state = "up"
	case l.Up:
		state = "up without a carrier"
	}
	return event.Link{Index: l.Index, Name: l.Name, State: state, Action: a}
}

// Resolves reports whether the kernel resolves link-layer addresses of next hops on the link.
func (l Link) Resolves() bool {
	return l.Up && !l.Loopback() && l.Flags&unix.IFF_NOARP == 0 && l.Ethernet()
}

// cannotBe reports whether the link cannot be the link o: a constant property differs, or its
// counter is lower. A link with a new MAC address counts as another link, which costs little.
func (l Link) cannotBe(o Link) bool {
	return l.Type != o.Type || l.Kind != o.Kind || l.Bus != o.Bus || l.PeerIndex != o.PeerIndex || l.PeerElsewhere != o.PeerElsewhere ||
		!bytes.Equal(l.MAC, o.MAC) || l.carrierChanges < o.carrierChanges
}

// looksLike reports whether the link equals o in all properties that matter.
func (l Link) looksLike(o Link) bool {
	return l.Index == o.Index && l.Name == o.Name && bytes.Equal(l.MAC, o.MAC) && l.MTU == o.MTU && l.Up == o.Up &&
		l.Type == o.Type && l.Kind == o.Kind && l.Bus == o.Bus && l.Master == o.Master && l.PeerIndex == o.PeerIndex &&
		l.PeerElsewhere == o.PeerElsewhere && l.Generation == o.Generation && (l.Flags^o.Flags)&(unix.IFF_NOARP|unix.IFF_RUNNING) == 0
}

// parseLink parses an RTM_NEWLINK or RTM_DELLINK. Messages of the bridge family are about a port,
// not a link.
func parseLink(body []byte) (Link, bool) {
	if len(body) < unix.SizeofIfInfomsg || body[0] != unix.AF_UNSPEC {
		return Link{}, false
	}
	l := Link{
		Type:  binary.NativeEndian.Uint16(body[2:]),
		Index: int(int32(binary.NativeEndian.Uint32(body[4:]))),
		Flags: binary.NativeEndian.Uint32(body[8:]),
	}
	l.Up = l.Flags&unix.IFF_UP != 0
	netlink.Attributes(body, unix.SizeofIfInfomsg, func(typ uint16, v []byte) {
		switch typ {
		case unix.IFLA_IFNAME:
			l.Name = string(bytes.TrimRight(v, "\x00"))
		case unix.IFLA_ADDRESS:
			if l.Ethernet() {
				l.MAC = bytes.Clone(v)
			}
		case unix.IFLA_MTU:
			l.MTU = int(netlink.Uint32(v))
		case unix.IFLA_PARENT_DEV_BUS_NAME:
			l.Bus = string(bytes.TrimRight(v, "\x00"))
		case unix.IFLA_CARRIER_CHANGES:
			l.carrierChanges = netlink.Uint32(v)
		case unix.IFLA_EVENT:
			l.offloadsChanged = netlink.Uint32(v) == unix.IFLA_EVENT_FEATURES
		case unix.IFLA_MASTER:
			l.Master = int(netlink.Uint32(v))
		case unix.IFLA_LINK:
			l.PeerIndex = int(netlink.Uint32(v))
		case unix.IFLA_LINK_NETNSID:
			l.PeerElsewhere = true
		case unix.IFLA_LINKINFO:
			netlink.Attributes(v, 0, func(typ uint16, v []byte) {
				if typ == unix.IFLA_INFO_KIND {
					l.Kind = string(bytes.TrimRight(v, "\x00"))
				}
			})
		}
	})
	return l, true
}
