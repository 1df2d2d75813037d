// Package ipsec reads the policies of IPsec (xfrm) of a namespace.
package ipsec

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/netlink"
)

// Constants of linux/xfrm.h that x/sys/unix does not have.
const (
	msgNewPolicy  = 0x13
	msgGetPolicy  = 0x15
	msgGetDefault = 0x28 // 5.15

	policyBytes = 168 // struct xfrm_userpolicy_info

	attrTemplates = 5
	attrType      = 16
	attrMark      = 21
	attrInterface = 31

	directionOut     = 1
	directionForward = 2
	actionBlock      = 1
	defaultBlock     = 1
)

// Port is a port of a selector and its mask; mask 0 is any port.
type Port struct{ Number, Mask uint16 }

// Range returns the first and the last port. Not ok: the mask leaves holes.
func (p Port) Range() (first, last uint16, ok bool) {
	first, last = p.Number&p.Mask, p.Number|^p.Mask
	return first, last, ^p.Mask&(^p.Mask+1) == 0
}

// Policy is a match for packets, and whether they may leave unprotected.
type Policy struct {
	Forward                     bool // for arriving packets that are forwarded; otherwise for leaving packets
	Source, Destination         netip.Prefix
	SourcePort, DestinationPort Port
	Protocol                    uint8 // 0: any
	Default                     bool  // the default of its direction
	Blocks                      bool
	Protects                    bool // the packets must be encrypted or authenticated
	Narrow                      bool // also matches on an interface, or on ports that are no range
	priority                    uint32
}

// Refuses reports whether packets must not leave as they are, or, if Forward, not arrive so.
func (p *Policy) Refuses() bool { return p.Blocks || p.Protects }

// String returns the policy in the words of ip xfrm policy.
func (p *Policy) String() string {
	var b strings.Builder
	direction := "out"
	if p.Forward {
		direction = "fwd"
	}
	if p.Default {
		return "default " + direction + " block"
	}
	fmt.Fprintf(&b, "src %s dst %s", p.Source, p.Destination)
	if p.Protocol != 0 {
		fmt.Fprintf(&b, " proto %d", p.Protocol)
	}
	for _, port := range []struct {
		name string
		Port
	}{{"sport", p.SourcePort}, {"dport", p.DestinationPort}} {
		if port.Mask != 0 {
			fmt.Fprintf(&b, " %s %d", port.name, port.Number)
		}
	}
	fmt.Fprintf(&b, " dir %s", direction)
	switch {
	case p.Blocks:
		b.WriteString(" action block")
	case p.Protects:
		b.WriteString(" tmpl")
	default:
		b.WriteString(" action allow")
	}
	return b.String()
}

// everything returns policies that match each packet of either IP version.
func everything(forward bool) []Policy {
	var out []Policy
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		all := netip.MustParsePrefix(all)
		out = append(out, Policy{Forward: forward, Source: all, Destination: all, Default: true, Blocks: true, priority: ^uint32(0)})
	}
	return out
}

// parse parses a policy. Not ok: it matches no balanced packet. A policy by mark is for packets
// with that mark, and balanced packets are looked up without one; a policy with an interface id is
// for packets that leave by an xfrm interface.
func parse(body []byte) (p Policy, ok bool) {
	if len(body) < policyBytes {
		return Policy{}, false
	}
	direction := body[160]
	p = Policy{
		Forward: direction == directionForward, Protocol: body[44], priority: binary.NativeEndian.Uint32(body[152:]),
		Source:      prefix(binary.NativeEndian.Uint16(body[40:]), body[16:32], body[43]),
		Destination: prefix(binary.NativeEndian.Uint16(body[40:]), body[0:16], body[42]),
		SourcePort:  port(body[36:]), DestinationPort: port(body[32:]),
	}
	templates, foreign := false, false
	netlink.Attributes(body, policyBytes, func(typ uint16, v []byte) {
		switch typ {
		case attrTemplates:
			templates = templates || len(v) > 0
		case attrMark:
			foreign = foreign || netlink.Uint32(v) != 0
		case attrInterface:
			foreign = foreign || netlink.Uint32(v) != 0
		case attrType:
			foreign = foreign || len(v) > 0 && v[0] != 0
		}
	})
	p.Blocks = body[161] == actionBlock
	p.Protects = templates && !p.Blocks
	_, _, source := p.SourcePort.Range()
	_, _, destination := p.DestinationPort.Range()
	p.Narrow = binary.NativeEndian.Uint32(body[48:]) != 0 || !source || !destination
	ok = (direction == directionOut || direction == directionForward) && !foreign && p.Source.IsValid() && p.Destination.IsValid()
	return p, ok
}

func prefix(family uint16, address []byte, bits byte) netip.Prefix {
	switch family {
	case unix.AF_INET:
		return netip.PrefixFrom(netip.AddrFrom4([4]byte(address)), int(bits)).Masked()
	case unix.AF_INET6:
		return netip.PrefixFrom(netip.AddrFrom16([16]byte(address)), int(bits)).Masked()
	}
	return netip.Prefix{}
}

func port(b []byte) Port { return Port{binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])} }
