package netdev

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/netdev/netlink"
)

// Multicast groups of the kernel's uapi (linux/xfrm.h).
const (
	groupExpire = 2 // reports the end of policies that have a lifetime; groupPolicy does not
	groupPolicy = 4
)

const (
	followBuffer = 256 << 10
	// readEvery bounds how long an unreported change is overlooked.
	readEvery  = 30 * time.Second
	reopenWait = time.Second
)

// followIPsec calls changed whenever policies of a namespace may have changed, until ctx ends, and
// once at its start. It returns at once if the kernel has no IPsec.
func followIPsec(ctx context.Context, ns *netlink.Namespace, changed func()) {
	for ctx.Err() == nil {
		s, err := ns.SubscribeIPsec(followBuffer, groupExpire, groupPolicy)
		if errors.Is(err, unix.EPROTONOSUPPORT) {
			return
		}
		changed()
		if err == nil {
			receivePolicies(ctx, s, changed)
			_ = s.Close() // the subscription is no longer read
		}
		monotime.Sleep(ctx, reopenWait)
	}
}

// receivePolicies returns when the kernel no longer reports changes.
func receivePolicies(ctx context.Context, s *netlink.Subscription, changed func()) {
	last := time.Now()
	for ctx.Err() == nil {
		some := false
		err := s.Receive(ctx, func(netlink.Message) { some = true })
		if errors.Is(err, netlink.ErrOverrun) {
			some, err = true, s.Drain()
		}
		if err != nil {
			return
		}
		if some || time.Since(last) > readEvery {
			last = time.Now()
			changed()
		}
	}
}

// readIPsec lists the policies of a namespace that may match balanced packets, in the kernel's
// order. A kernel without IPsec has none.
func readIPsec(ns *netlink.Namespace) ([]IPsecPolicy, error) {
	conn, err := ns.DialIPsec()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := readPolicies(conn)
	return list, errors.Join(err, conn.Close())
}

func readPolicies(conn *netlink.Conn) (list []IPsecPolicy, err error) {
	err = conn.Dump(msgGetPolicy, nil, func(m netlink.Message) {
		if m.Type != msgNewPolicy {
			return
		}
		if p, ok := parsePolicy(m.Body); ok {
			list = append(list, p)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list IPsec policies: %w", err)
	}
	slices.Reverse(list) // of equal priority the oldest comes first, which the kernel lists last
	slices.SortStableFunc(list, func(a, b IPsecPolicy) int { return cmp.Compare(a.priority, b.priority) })
	return withDefault(conn, list)
}

// withDefault adds the default for packets that match no policy. Kernels before 5.15 let them
// leave.
func withDefault(conn *netlink.Conn, list []IPsecPolicy) ([]IPsecPolicy, error) {
	answer, err := conn.One(netlink.NewRequest(msgGetDefault, 0, make([]byte, 4)))
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return list, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the default policy of IPsec: %w", err)
	}
	if len(answer) > 2 && answer[1] == defaultBlock {
		list = append(list, allAddresses(true)...)
	}
	if len(answer) > 2 && answer[2] == defaultBlock {
		list = append(list, allAddresses(false)...)
	}
	return list, nil
}

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

// IPsecPort is a port of a selector and its mask; mask 0 is any port.
type IPsecPort struct{ Number, Mask uint16 }

// Range returns the first and the last port. It returns false if the ports are not contiguous.
func (p IPsecPort) Range() (first, last uint16, ok bool) {
	first, last = p.Number&p.Mask, p.Number|^p.Mask
	return first, last, ^p.Mask&(^p.Mask+1) == 0
}

// IPsecPolicy is a match for packets, and whether they may leave unprotected.
type IPsecPolicy struct {
	Forward                     bool // for arriving packets that are forwarded; otherwise for leaving packets
	Source, Destination         netip.Prefix
	SourcePort, DestinationPort IPsecPort
	Protocol                    uint8 // 0: any
	Default                     bool  // the default of its direction
	Blocks                      bool
	Protects                    bool // the packets must be encrypted or authenticated
	Narrow                      bool // also matches on an interface, or on ports that are no range
	priority                    uint32
}

// Refuses reports whether unencrypted packets must not leave or, if Forward, must not arrive.
func (p *IPsecPolicy) Refuses() bool { return p.Blocks || p.Protects }

// String returns the policy in the format of ip xfrm policy.
func (p *IPsecPolicy) String() string {
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
		IPsecPort
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

// allAddresses returns policies that match each packet of either IP version.
func allAddresses(forward bool) []IPsecPolicy {
	var out []IPsecPolicy
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		all := netip.MustParsePrefix(all)
		out = append(out, IPsecPolicy{Forward: forward, Source: all, Destination: all, Default: true, Blocks: true, priority: ^uint32(0)})
	}
	return out
}

// parsePolicy parses a policy. It returns false if the policy matches no balanced packet: a policy
// by mark, since balanced packets are looked up without a mark, or a policy with an interface id,
// which is for packets that leave by an xfrm interface.
func parsePolicy(body []byte) (p IPsecPolicy, ok bool) {
	if len(body) < policyBytes {
		return IPsecPolicy{}, false
	}
	direction := body[160]
	p = IPsecPolicy{
		Forward: direction == directionForward, Protocol: body[44], priority: binary.NativeEndian.Uint32(body[152:]),
		Source:      policyPrefix(binary.NativeEndian.Uint16(body[40:]), body[16:32], body[43]),
		Destination: policyPrefix(binary.NativeEndian.Uint16(body[40:]), body[0:16], body[42]),
		SourcePort:  policyPort(body[36:]), DestinationPort: policyPort(body[32:]),
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

func policyPrefix(family uint16, address []byte, bits byte) netip.Prefix {
	switch family {
	case unix.AF_INET:
		return netip.PrefixFrom(netip.AddrFrom4([4]byte(address)), int(bits)).Masked()
	case unix.AF_INET6:
		return netip.PrefixFrom(netip.AddrFrom16([16]byte(address)), int(bits)).Masked()
	}
	return netip.Prefix{}
}

func policyPort(b []byte) IPsecPort {
	return IPsecPort{binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])}
}
