package netdev

import (
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Gateway is an egress gateway: an address that connections leave with, on one node of a cluster at
// a time.
type Gateway struct {
	Addr  netip.Addr
	Mark  uint32 // mark of packets for the gateway on this node, within GatewayMarkMask
	Owned bool   // by this node: packets from other nodes end here

	// collides is set if an earlier gateway has the same number: two gateways cannot share a
	// tunnel.
	collides bool
}

// Marks of packets for gateways. They use their own bits: kube-proxy uses bits 14 and 15, Calico
// the upper half.
const (
	FirstGatewayMark = 0x2000
	GatewayMarkMask  = 0x3fff
	GatewayMarks     = GatewayMarkMask - FirstGatewayMark + 1 // how many there are
)

// namePrefix is the prefix of the names of the tunnels' interfaces; the tunnel's number follows.
const namePrefix = "egr"

// firstNumber is the first number of tunnels and routing tables, above numbers that users typically
// choose.
const firstNumber = 1 << 23

// tunnelNumber returns the 24-bit number of the tunnel and its routing table, which is the same on
// all nodes.
func (one Gateway) tunnelNumber() uint32 {
	h := fnv.New32a()
	h.Write(one.Addr.AsSlice()) // it returns no error
	n := h.Sum32()
	return firstNumber | (n^n>>23)&(firstNumber-1)
}

func (one Gateway) tunnelName() string { return tunnelNameOf(one.tunnelNumber()) }

func tunnelNameOf(number uint32) string { return fmt.Sprintf("%s%06x", namePrefix, number) }

// IsTunnel reports whether an interface of this name is a tunnel to a gateway.
func IsTunnel(name string) bool {
	digits, is := strings.CutPrefix(name, namePrefix)
	return is && len(digits) == 6 && strings.Trim(digits, "0123456789abcdef") == ""
}

// ownerMAC is the MAC address of the owner's end. The kernel drops frames that come from a tunnel
// with its own MAC address, so no other node has it.
func ownerMAC(number uint32) net.HardwareAddr {
	return net.HardwareAddr{2, 0x6c, 0x62, byte(number >> 16), byte(number >> 8), byte(number)}
}

// withCollisions returns the gateways with their collisions. With 200 addresses, one of 500
// clusters has a collision.
func withCollisions(list []Gateway) []Gateway {
	list = slices.Clone(list)
	first := make(map[uint32]bool, len(list))
	for i := range list {
		n := list[i].tunnelNumber()
		list[i].collides, first[n] = first[n], true
	}
	return list
}

// mac returns the MAC address of this node's end, derived from the MAC address of the underlay.
func (one Gateway) mac(underlay net.HardwareAddr) net.HardwareAddr {
	if one.Owned {
		return ownerMAC(one.tunnelNumber())
	}
	mac := net.HardwareAddr{6, 0, 0, 0, 0, 0}
	copy(mac[1:], underlay[max(0, len(underlay)-5):])
	return mac
}

// mtu returns the tunnel's MTU: its headers are Ethernet, VXLAN, UDP and IP.
func (one Gateway) mtu(underlay int) int {
	if one.Addr.Is4() {
		return underlay - 14 - 8 - 8 - 20
	}
	return underlay - 14 - 8 - 8 - 40
}

// router returns the next hop in the tunnel: an arbitrary address, whose neighbour entry is
// permanent.
func (one Gateway) router() netip.Addr {
	if one.Addr.Is4() {
		return netip.AddrFrom4([4]byte{169, 254, 0, 1})
	}
	return netip.MustParseAddr("fe80::1")
}

// defaultPrefix returns the prefix of a default route of the address's IP version.
func defaultPrefix(like netip.Addr) *net.IPNet {
	bits := like.BitLen()
	return &net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)}
}
