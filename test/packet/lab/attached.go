package lab

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/policy"
)

// scriptRate is a byte per second: it adds no tokens during a script, even on a slow machine. The
// lowest rate that users may set would fill the bursts of a script within half a second.
var scriptRate = policy.Rate{PerSecond: 8}

// SetPolicer creates a policer, given in the syntax of scripts, or removes it.
func (l *Lab) SetPolicer(text string) error {
	words := strings.Fields(text)
	if len(words) == 1 {
		delete(l.policers, words[0])
		return l.attach()
	}
	if len(words) != 5 && len(words) != 6 || words[2] != "to" {
		return fmt.Errorf("policer %q is not NAME BURST to KIND TARGET [DIRECTION]", text)
	}
	burst, err := strconv.ParseUint(words[1], 10, 64)
	if err != nil {
		return err
	}
	to, err := policy.ParseAttachTo(words[3])
	if err != nil {
		return err
	}
	p := policy.Policer{
		Name: words[0], OneRate: true, Committed: policy.Rate{PerSecond: policy.MinBitRate}, CommittedBurst: burst, ExcessBurst: burst,
		Attachment: policy.Attachment{To: to, Name: words[4], Direction: policy.Direction(strings.Join(words[5:], ""))},
	}.Normal()
	if err := p.Validate(); err != nil {
		return err
	}
	p.Committed = scriptRate
	l.policers[p.Name] = p
	return l.attach()
}

// SetMirror creates a mirror, given in the syntax of scripts, or removes it.
func (l *Lab) SetMirror(text string) error {
	words := strings.Fields(text)
	if len(words) == 1 {
		delete(l.mirrors, words[0])
		return l.attach()
	}
	if len(words) != 5 && len(words) != 6 || words[2] != "to" {
		return fmt.Errorf("mirror %q is not NAME LINK[:VLAN] to KIND TARGET [DIRECTION]", text)
	}
	m := policy.Mirror{Name: words[0]}
	port, vlan, tagged := strings.Cut(words[1], ":")
	m.Port = port
	if tagged {
		id, err := strconv.ParseUint(vlan, 10, 16)
		if err != nil {
			return err
		}
		m.Type, m.VLAN = policy.RSPAN, uint16(id)
	}
	to, err := policy.ParseAttachTo(words[3])
	if err != nil {
		return err
	}
	m.Attachment = policy.Attachment{To: to, Name: words[4], Direction: policy.Direction(strings.Join(words[5:], ""))}
	m = m.Normal()
	if err := m.Validate(); err != nil {
		return err
	}
	l.mirrors[m.Name] = m
	return l.attach()
}

// attach writes policers and mirrors to the data path. They are attached to a service by its key.
func (l *Lab) attach() error {
	all := &bpf.Attached{
		Policers: map[string]bpf.TcPolicer{}, Mirrors: map[string]bpf.TcMirror{}, Services: map[bpf.TcServiceKey]bpf.TcAttachments{},
		Sources: map[netip.Prefix]bpf.TcAttachments{}, Rules: map[uint64]bpf.TcAttachments{}, Ports: map[int]bpf.TcAttachments{},
	}
	for name, p := range l.policers {
		all.Policers[name] = compile.Policer(&p)
		if err := l.attachKey(all, p.Attachment, bpf.NameKey(name), func(row *bpf.TcAttachments) *[2]uint64 { return &row.Policers }); err != nil {
			return err
		}
	}
	for name, m := range l.mirrors {
		index, err := l.linkIndex(m.Port)
		if err != nil {
			return err
		}
		all.Mirrors[name] = bpf.TcMirror{Ifindex: uint32(index), Vlan: uint32(m.VLAN)}
		if err := l.attachKey(all, m.Attachment, bpf.NameKey(name), func(row *bpf.TcAttachments) *[2]uint64 { return &row.Mirrors }); err != nil {
			return err
		}
	}
	failed, err := l.Datapath.SetAttached(all)
	return errors.Join(append(slices.Concat(slices.Collect(maps.Values(failed.Policers)), slices.Collect(maps.Values(failed.Mirrors))), err)...)
}

// attachKey adds a key to the attachments of an interface, source, rule or service.
func (l *Lab) attachKey(all *bpf.Attached, at policy.Attachment, key uint64, keys func(*bpf.TcAttachments) *[2]uint64) error {
	enter := func(row bpf.TcAttachments) bpf.TcAttachments {
		for i, back := range []bool{false, true} {
			if at.Direction.Has(back) {
				keys(&row)[i] = key
			}
		}
		return row
	}
	switch at.To {
	case policy.AttachPort:
		link, err := l.Link(at.Name)
		if err != nil {
			return err
		}
		all.Ports[link.Index] = enter(all.Ports[link.Index])
		if l.xdp {
			all.Ports[1] = all.Ports[link.Index] // in tests of XDP, frames arrive at lo
		}
	case policy.AttachSource:
		p, err := at.Prefix()
		if err != nil {
			return err
		}
		all.Sources[p] = enter(all.Sources[p])
	case policy.AttachRule:
		rule, err := policy.ParseRuleKey(at.Name)
		if err != nil {
			return err
		}
		identity := compile.RuleIdentity(&rule)
		all.Rules[identity] = enter(all.Rules[identity])
	case policy.AttachService:
		_, service, err := at.Service()
		if err != nil {
			return err
		}
		all.Services[compile.Key(service)] = enter(all.Services[compile.Key(service)])
	}
	return nil
}

// DumpMirrors returns the counts of mirrors as lines: packets, bytes and lost copies.
func (l *Lab) DumpMirrors() (lines []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(l.mirrors)) {
		n, err := l.Datapath.Mirrored(name)
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%s packets=%d bytes=%d lost=%d", name, n.Packets, n.Bytes, n.Lost))
	}
	return lines, nil
}

// DumpPolicers returns the counts of policers as lines: packets and bytes of each color.
func (l *Lab) DumpPolicers() (lines []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(l.policers)) {
		n, err := l.Datapath.Policed(name)
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%s green=%d/%d yellow=%d/%d red=%d/%d", name, n.Packets[0], n.Bytes[0], n.Packets[1], n.Bytes[1], n.Packets[2], n.Bytes[2]))
	}
	return lines, nil
}
