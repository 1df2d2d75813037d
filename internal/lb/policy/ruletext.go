package policy

import (
	"strconv"
	"strings"

	"loxilb/internal/lb"
)

// ParseRuleKey parses the conditions of a rule in the form of Key and --firewallRule, such as
// sourceIP:10.0.0.0/8,minDestinationPort:80,protocol:6. A value begins after the first colon, so it
// may be an IPv6 address. A first port without a last one is a single port.
func ParseRuleKey(s string) (r Rule, err error) {
	seen := map[string]bool{}
	for part := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(part, ":")
		name = strings.TrimSpace(name)
		if !ok {
			return r, lb.NewFieldError("firewallRule", part, "has no colon", "KEY:VALUE,KEY:VALUE, as in sourceIP:10.0.0.0/8,minDestinationPort:80")
		}
		field, known := ruleField(name)
		if !known {
			return r, lb.NewFieldError("firewallRule", name, "is not a key of a rule", strings.Join(RuleKeys(), ", "))
		}
		if seen[field] {
			return r, lb.NewFieldError("firewallRule", name, "is given twice", "each key once")
		}
		seen[field] = true
		if err := r.set(field, strings.TrimSpace(value)); err != nil {
			return r, err
		}
	}
	return r.Normal(), nil
}

// RuleKeys returns the keys of --firewallRule.
func RuleKeys() []string {
	return []string{
		FieldRuleSource, FieldRuleDestination, FieldRuleMinSourcePort, FieldRuleMaxSourcePort, FieldRuleMinDestinationPort, FieldRuleMaxDestinationPort,
		FieldRuleProtocol, FieldRuleProtocolMax, FieldRuleInterface, FieldRulePreference,
	}
}

// IsRuleKey reports whether a word is one of RuleKeys, in any case.
func IsRuleKey(name string) bool {
	_, known := ruleField(name)
	return known
}

// ruleField finds a key in any case.
func ruleField(name string) (string, bool) {
	for _, k := range RuleKeys() {
		if strings.EqualFold(k, name) {
			return k, true
		}
	}
	return "", false
}

func (r *Rule) set(field, value string) (err error) {
	switch field {
	case FieldRuleSource:
		r.Source, err = lb.ParsePrefix(field, value)
	case FieldRuleDestination:
		r.Destination, err = lb.ParsePrefix(field, value)
	case FieldRuleMinSourcePort:
		r.SourcePorts.Min, err = lb.ParsePort(field, value)
	case FieldRuleMaxSourcePort:
		r.SourcePorts.Max, err = lb.ParsePort(field, value)
	case FieldRuleMinDestinationPort:
		r.DestinationPorts.Min, err = lb.ParsePort(field, value)
	case FieldRuleMaxDestinationPort:
		r.DestinationPorts.Max, err = lb.ParsePort(field, value)
	case FieldRuleProtocol:
		r.Protocol, err = parseRuleProtocol(field, value)
	case FieldRuleProtocolMax:
		r.ProtocolMax, err = parseRuleProtocol(field, value)
	case FieldRuleInterface:
		r.Interface = value
	case FieldRulePreference:
		r.Preference, err = lb.ParsePort(field, value)
	}
	return err
}

// RuleProtocolWord returns the name of a protocol, or its number if services cannot have it.
func RuleProtocolWord(n uint8) string {
	for _, p := range append(lb.Protocols(), lb.ICMPv6) {
		if n == uint8(p) {
			return p.String()
		}
	}
	return strconv.Itoa(int(n))
}

// ParseRuleProtocol is the inverse of RuleProtocolWord.
func ParseRuleProtocol(s string) (uint8, error) { return parseRuleProtocol(FieldRuleProtocol, s) }

// parseRuleProtocol parses a number, or one of the words tcp, udp, sctp, icmp and icmp6.
func parseRuleProtocol(field, s string) (uint8, error) {
	for _, p := range append(lb.Protocols(), lb.ICMPv6) {
		if strings.EqualFold(s, p.String()) {
			return uint8(p), nil
		}
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return 0, lb.NewFieldError(field, s, "is not a protocol", "0 (any) to 255, or tcp, udp, sctp, icmp, icmp6")
	}
	return uint8(n), nil
}

// ParseRule parses a rule as String writes it: its key, its action, and its other effects.
func ParseRule(s string) (Rule, error) {
	words := strings.Fields(s)
	if len(words) < 2 {
		return Rule{}, lb.NewFieldError("rule", s, "is not a rule", "KEY:VALUE,... ACTION [mark=N] [record], where ACTION is allow, drop, trap, redirect=INTERFACE or snat=IP [default]")
	}
	r, err := ParseRuleKey(words[0])
	if err != nil {
		return r, err
	}
	word, to, hasTo := strings.Cut(words[1], "=")
	if r.Action, err = ParseRuleAction(word); err != nil {
		return r, err
	}
	switch {
	case r.Action == RuleRedirect:
		r.ToInterface = to
	case r.Action == RuleSNAT:
		if r.ToSource, err = lb.ParseAddr(FieldRuleToSource, to); err != nil {
			return r, err
		}
	case hasTo:
		return r, lb.NewFieldError("rule", words[1], "has a value, but the action has none", word)
	}
	for _, word := range words[2:] {
		name, value, _ := strings.Cut(word, "=")
		switch {
		case name == "mark":
			if r.Mark, err = lb.ParseMark(value); err != nil {
				return r, err
			}
		case word == "default" && r.Action == RuleSNAT:
			r.OnDefault = true
		case word == "record":
			r.Record = true
		default:
			return r, lb.NewFieldError("rule", word, "is not known", "mark=N, record, or default after snat=IP")
		}
	}
	return r, r.Validate()
}

// ParseRuleAction parses the word of an action.
func ParseRuleAction(s string) (RuleAction, error) {
	for a := RuleAllow; a <= RuleSNAT; a++ {
		if s == a.String() {
			return a, nil
		}
	}
	return 0, lb.NewFieldError("action", s, "is not known", ruleActions)
}

// String returns the rule on one line.
func (r Rule) String() string { return r.Key() + " " + r.RuleVerdict.String() }

// String writes the rule's action.
func (v RuleVerdict) String() string {
	s := v.Action.String()
	switch v.Action {
	case RuleRedirect:
		s += "=" + v.ToInterface
	case RuleSNAT:
		s += "=" + v.ToSource.String()
		if v.OnDefault {
			s += " default"
		}
	}
	if v.Mark != 0 {
		s += " mark=" + strconv.FormatUint(uint64(v.Mark), 10)
	}
	if v.Record {
		s += " record"
	}
	return s
}
