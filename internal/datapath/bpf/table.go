package bpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// ServiceTable is one service in the data path's terms: what compile makes and datapath writes, before ids are
// given out.
type ServiceTable struct {
	Key       TcServiceKey
	Name      string          // for listings; the maps do not hold it
	Idle      time.Duration   // 0: the protocol's default
	Endpoints []EndpointTable // in the user's order, without duplicates
	Slots     []uint32        // places of the table that connections walk through: indices into Endpoints
}

// EndpointTable is one endpoint of a ServiceTable.
type EndpointTable struct {
	Addr   TcIpAddr
	Port   uint16 // network byte order, as in the map
	Weight uint16 // for listings; the maps hold it as a share of the slots
}

// String prints the table as one line for the service, one for each endpoint and one for the slots, in which
// runs are not shortened: goldens and debug logs show what the maps will hold.
func (t ServiceTable) String() string {
	var b strings.Builder
	idle := "default"
	if t.Idle > 0 {
		idle = t.Idle.String()
	}
	fmt.Fprintf(&b, "service %s slots=%d idle=%s\n", t.Key, len(t.Slots), idle)
	for i, e := range t.Endpoints {
		fmt.Fprintf(&b, "endpoint %d %s weight=%d\n", i, AddrPort(e.Addr, e.Port), e.Weight)
	}
	b.WriteString("slots")
	for _, s := range t.Slots {
		fmt.Fprintf(&b, " %d", s)
	}
	b.WriteByte('\n')
	return b.String()
}

func (k TcServiceKey) String() string {
	proto := fmt.Sprint(k.Protocol)
	switch k.Protocol {
	case 6:
		proto = "tcp"
	case 17:
		proto = "udp"
	}
	return AddrPort(k.Vip, k.Port).String() + "/" + proto
}

// Addr gives an address the form of the maps: 16 bytes, IPv4 mapped.
func Addr(a netip.Addr) TcIpAddr {
	var out TcIpAddr
	b := a.As16()
	for i := range out.Word {
		out.Word[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return out
}

// Netip is the inverse of Addr: IPv4 comes out as IPv4.
func (a TcIpAddr) Netip() netip.Addr {
	var b [16]byte
	for i, w := range a.Word {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return netip.AddrFrom16(b).Unmap()
}

// Port turns a port from host to network byte order or back.
func Port(p uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], p)
	return binary.NativeEndian.Uint16(b[:])
}

// AddrPort reads an address and a port as they are in the maps.
func AddrPort(a TcIpAddr, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(a.Netip(), Port(port))
}
