package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/desired"
	"loxilb/internal/kernel/datapath/dryrun"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// place is an object with policers and mirrors to which the packet belongs.
type place struct {
	what  string
	to    policy.AttachTo
	names []string // the first one with an attachment applies
	back  bool     // the packet is an answer
}

// addAttached adds the policers and mirrors that the packet meets.
func (i *inquiry) addAttached(r *dryrun.Result, s *lb.Service) {
	var policers, mirrors []string
	for _, p := range i.places(r, s) {
		if name, there := p.lookup(func(name string) (string, bool) {
			o, there := desired.AttachedAt(i.Desired.Policers, i.now, p.to, name, p.back)
			return o.Name, there
		}); there {
			policers = append(policers, name)
		}
		if name, there := p.lookup(func(name string) (string, bool) {
			o, there := desired.AttachedAt(i.Desired.Mirrors, i.now, p.to, name, p.back)
			if o.OneOf > 1 {
				return fmt.Sprintf("%s, one of %d packets", o.Name, o.OneOf), there
			}
			return o.Name, there
		}); there {
			mirrors = append(mirrors, name)
		}
	}
	i.addPolicers(r, policers)
	if len(mirrors) > 0 {
		i.answer.add("mirror", OK, "gets a copy: %s", strings.Join(mirrors, "; "))
	}
}

func (i *inquiry) addPolicers(r *dryrun.Result, policers []string) {
	switch {
	case len(policers) == 0:
	case r.Reason == "policed":
		i.answer.add("police", Failed, "exceeds the rate of %s", strings.Join(policers, ", or "))
	default:
		i.answer.add("police", OK, "currently within the rate of %s", strings.Join(policers, " and "))
	}
}

// lookup returns the attachment at a place, and the name under which it was found.
func (p place) lookup(find func(name string) (string, bool)) (string, bool) {
	for _, name := range p.names {
		if found, there := find(name); there {
			return fmt.Sprintf("%s (of %s)", found, p.what), true
		}
	}
	return "", false
}

// places returns the packet's places of attachment, in the order in which the program checks them
// (bpf/limit/attached.h).
func (i *inquiry) places(r *dryrun.Result, s *lb.Service) []place {
	list := []place{{what: "interface " + i.in.Name, to: policy.AttachPort, names: []string{i.in.Name}}}
	back := r.Entry != nil && r.Entry.Reply
	if r.Entry != nil && r.Entry.Attached {
		client := i.From.Addr()
		if back {
			client = r.Entry.Target.Addr()
		}
		if prefix, there := i.prefixOf(client); there {
			list = append(list, place{"client " + prefix, policy.AttachSource, []string{prefix}, back})
		}
		if s != nil {
			list = append(list, place{"service " + s.Key.String(), policy.AttachService, []string{s.Key.String(), s.Name}, back})
		}
	}
	if rule, there := i.ruleOf(r); there {
		list = append(list, place{fmt.Sprintf("rule %q", rule), policy.AttachRule, []string{rule}, back})
	}
	return list
}

// prefixOf returns the longest prefix of a client's address that has an attachment. Only the
// longest one applies.
func (i *inquiry) prefixOf(client netip.Addr) (string, bool) {
	for bits := client.BitLen(); bits >= 0; bits-- {
		name := netip.PrefixFrom(client, bits).Masked().String()
		for _, back := range []bool{false, true} {
			_, policed := desired.AttachedAt(i.Desired.Policers, i.now, policy.AttachSource, name, back)
			if _, mirrored := desired.AttachedAt(i.Desired.Mirrors, i.now, policy.AttachSource, name, back); policed || mirrored {
				return name, true
			}
		}
	}
	return "", false
}

// ruleOf returns the key of the rule that has decided the packet, or its connection, if its
// attachments see the packet.
func (i *inquiry) ruleOf(r *dryrun.Result) (key string, there bool) {
	id, decided := r.Rule, r.HasRule && (r.Outcome == dryrun.Passes || r.Outcome == dryrun.Redirects || r.Reason == "rule")
	if r.Entry != nil && r.Entry.Attached && r.NextHop != nil {
		id, decided = r.NextHop.Rule, r.NextHop.HasRule
	}
	if !decided {
		return "", false
	}
	for rule := range i.Desired.Rules.All(i.now) {
		if compile.RuleIdentity(&rule) == id {
			return rule.Key(), true
		}
	}
	return "", false
}
