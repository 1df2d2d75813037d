package lab

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"loxilb/internal/compile"
	"loxilb/internal/datapath/bpf"
	"loxilb/internal/lb"
)

// Police makes a policer, as scripts write it, or takes it away.
func (l *Lab) Police(text string) error {
	words := strings.Fields(text)
	if len(words) == 1 {
		delete(l.policers, words[0])
		return l.attach()
	}
	if len(words) != 6 && len(words) != 7 || words[3] != "to" {
		return fmt.Errorf("policer %q is not NAME RATE BURST to KIND TARGET [DIRECTION]", text)
	}
	rate, err := lb.ParseRate("rate", words[1])
	if err != nil {
		return err
	}
	burst, err := strconv.ParseUint(words[2], 10, 64)
	if err != nil {
		return err
	}
	to, err := lb.ParseAttachTo(words[4])
	if err != nil {
		return err
	}
	p := lb.Policer{
		Name: words[0], OneRate: true, Committed: rate, CommittedBurst: burst, ExcessBurst: burst,
		Attachment: lb.Attachment{To: to, Name: words[5], Direction: lb.Direction(strings.Join(words[6:], ""))},
	}.Normal()
	if err := p.Validate(); err != nil {
		return err
	}
	l.policers[p.Name] = p
	return l.attach()
}

// attach has the data path do what the policers say. To a service they are attached by its key.
func (l *Lab) attach() error {
	all := &bpf.Attached{
		Policers: map[string]bpf.TcPolicer{}, Services: map[bpf.TcServiceKey]bpf.TcAttachments{},
		Sources: map[netip.Prefix]bpf.TcAttachments{}, Ports: map[int]bpf.TcAttachments{},
	}
	for name, p := range l.policers {
		all.Policers[name] = compile.Policer(&p)
		if err := l.place(all, p.Attachment, bpf.NameKey(name)); err != nil {
			return err
		}
	}
	failed, err := l.Datapath.SetAttached(all)
	return errors.Join(append(slices.Collect(maps.Values(failed.Policers)), err)...)
}

func (l *Lab) place(all *bpf.Attached, at lb.Attachment, key uint64) error {
	var row bpf.TcAttachments
	for i, back := range []bool{false, true} {
		if at.Direction.Has(back) {
			row.Policers[i] = key
		}
	}
	switch at.To {
	case lb.AttachPort:
		link, err := l.Link(at.Name)
		if err != nil {
			return err
		}
		all.Ports[link.Index] = row
		if l.xdp {
			all.Ports[1] = row // XDP has frames of a test arrive by lo
		}
	case lb.AttachSource:
		p, err := at.Prefix()
		if err != nil {
			return err
		}
		all.Sources[p] = row
	case lb.AttachService:
		_, service, err := at.Service()
		if err != nil {
			return err
		}
		all.Services[compile.Key(service)] = row
	}
	return nil
}

// DumpPolicers writes what policers have said: of each color, packets and bytes.
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
