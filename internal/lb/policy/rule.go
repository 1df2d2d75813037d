// Package policy defines traffic policies besides services: firewall rules, policers and mirrors,
// and packets refused by IPsec policies.
package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"

	"loxilb/internal/lb"
)

// Rule is a firewall rule: conditions for packets without a connection, and an action. The first
// matching rule in the order of CompareRules decides. An empty member matches any packet.
type Rule struct {
	Source, Destination           netip.Prefix // without host bits; not valid: any
	SourcePorts, DestinationPorts RulePorts
	Protocol                      uint8  // IANA; 0: any
	ProtocolMax                   uint8  // last of a range; 0: only one
	Interface                     string // at which packets arrive; "": any
	Preference                    uint16 // higher ones come first
	RuleVerdict
}

// RuleVerdict is the action of a rule.
type RuleVerdict struct {
	Action      RuleAction
	Mark        uint32     // mark to set on packets; 0: unchanged
	ToInterface string     // valid iff RuleRedirect
	ToSource    netip.Addr // valid iff RuleSNAT
	OnDefault   bool       // RuleSNAT: only for packets that leave by a default route
	Record      bool       // record copies of the packets
}

// RulePorts are ports from Min to Max. The zero value matches any port, and packets without ports.
type RulePorts struct{ Min, Max uint16 }

// Any reports whether the ports do not matter.
func (p RulePorts) Any() bool { return p == RulePorts{} }

// ruleActions lists the words of all actions.
const ruleActions = "allow, drop, trap, redirect or snat"

// RuleAction is the treatment of matching packets.
type RuleAction uint8

// The actions.
const (
	RuleAllow RuleAction = iota // as if there were no rules
	RuleDrop
	RuleTrap     // pass packets to the kernel, regardless of services
	RuleRedirect // send packets by another interface, unchanged
	RuleSNAT     // give connections through this machine another source address
)

// RuleCost is the highest cost of finding the firewall rule of a packet.
type RuleCost struct {
	Nodes int // visited nodes of search trees
	Rules int // compared rules
}

// MaxRules is the maximum number of firewall rules.
const MaxRules = 16384

// Names of a rule's fields in the API.
const (
	FieldRuleSource             = "sourceIP"
	FieldRuleDestination        = "destinationIP"
	FieldRuleMinSourcePort      = "minSourcePort"
	FieldRuleMaxSourcePort      = "maxSourcePort"
	FieldRuleMinDestinationPort = "minDestinationPort"
	FieldRuleMaxDestinationPort = "maxDestinationPort"
	FieldRuleProtocol           = "protocol"
	FieldRuleProtocolMax        = "maxProtocol"
	FieldRuleInterface          = "portName"
	FieldRulePreference         = "preference"
	FieldRuleMark               = "fwMark"
	FieldRuleToInterface        = "redirectPortName"
	FieldRuleToSource           = "toIP"
)

// String returns the word on the command line.
func (a RuleAction) String() string {
	switch a {
	case RuleAllow:
		return "allow"
	case RuleDrop:
		return "drop"
	case RuleTrap:
		return "trap"
	case RuleRedirect:
		return "redirect"
	case RuleSNAT:
		return "snat"
	}
	return "action(" + strconv.Itoa(int(a)) + ")"
}

// Normal returns the rule in its normal form: without a prefix of all addresses if the other prefix
// implies the IP version, and with a range of one value as that value.
func (r Rule) Normal() Rule {
	all := func(p netip.Prefix) bool { return p.IsValid() && p.Bits() == 0 }
	same := r.Source.IsValid() && r.Destination.IsValid() && r.Source.Addr().Is4() == r.Destination.Addr().Is4()
	switch {
	case same && all(r.Destination):
		r.Destination = netip.Prefix{}
	case same && all(r.Source):
		r.Source = netip.Prefix{}
	}
	r.SourcePorts, r.DestinationPorts = r.SourcePorts.normal(), r.DestinationPorts.normal()
	if r.ProtocolMax == r.Protocol {
		r.ProtocolMax = 0
	}
	if r.Protocol <= 1 && r.ProtocolMax == 255 {
		r.Protocol, r.ProtocolMax = 0, 0
	}
	return r
}

// normal treats a first port without a last port as a single port, and all ports as any.
func (p RulePorts) normal() RulePorts {
	switch {
	case p.Max == 0:
		p.Max = p.Min
	case p.Min <= 1 && p.Max == 65535:
		return RulePorts{}
	}
	return p
}

// Validate checks every field, and returns a *FieldError for the first that is refused. The rule is
// in its Normal form.
func (r Rule) Validate() error {
	if r.Source.IsValid() && r.Destination.IsValid() && r.Source.Addr().Is4() != r.Destination.Addr().Is4() {
		return lb.NewFieldError(FieldRuleDestination, r.Destination.String(), "is "+lb.IPVersion(r.Destination.Addr())+", and "+FieldRuleSource+" "+r.Source.String()+" is not",
			"two ranges of one IP version")
	}
	for _, p := range []struct {
		name  string
		ports RulePorts
	}{{FieldRuleMaxSourcePort, r.SourcePorts}, {FieldRuleMaxDestinationPort, r.DestinationPorts}} {
		if p.ports.Min > p.ports.Max {
			return lb.NewFieldError(p.name, strconv.Itoa(int(p.ports.Max)), "is less than the first port, "+strconv.Itoa(int(p.ports.Min)), "that or more, or 0 for that port alone")
		}
		if !p.ports.Any() && !r.hasPorts() {
			return lb.NewFieldError(FieldRuleProtocol, strconv.Itoa(int(r.Protocol)), "has no ports, but the rule requires ports", "6 (TCP), 17 (UDP), 132 (SCTP), or 0 for any")
		}
	}
	if r.ProtocolMax != 0 && r.ProtocolMax < r.Protocol {
		return lb.NewFieldError(FieldRuleProtocolMax, strconv.Itoa(int(r.ProtocolMax)), "is less than the first protocol, "+strconv.Itoa(int(r.Protocol)), "that or more, or 0 for that protocol alone")
	}
	if err := validateRuleInterface(FieldRuleInterface, r.Interface); err != nil {
		return err
	}
	if r.Action == RuleSNAT {
		for _, p := range []netip.Prefix{r.Source, r.Destination} {
			if p.IsValid() && r.ToSource.IsValid() && p.Addr().Is4() != r.ToSource.Is4() {
				return lb.NewFieldError(FieldRuleToSource, r.ToSource.String(), "is "+lb.IPVersion(r.ToSource)+", and the rule is for "+lb.IPVersion(p.Addr()), "an address of that version")
			}
		}
	}
	return r.RuleVerdict.validate()
}

// hasPorts reports whether any of the rule's protocols has ports.
func (r *Rule) hasPorts() bool {
	if r.Protocol == 0 && r.ProtocolMax == 0 {
		return true
	}
	for _, p := range lb.Protocols() {
		if p.HasPorts() && (uint8(p) == r.Protocol || uint8(p) > r.Protocol && uint8(p) <= r.ProtocolMax) {
			return true
		}
	}
	return false
}

func (v RuleVerdict) validate() error {
	switch v.Action {
	case RuleAllow, RuleDrop, RuleTrap:
	case RuleRedirect:
		if v.ToInterface == "" {
			return lb.NewFieldError(FieldRuleToInterface, "", "is missing", "the interface by which packets leave")
		}
		if err := validateRuleInterface(FieldRuleToInterface, v.ToInterface); err != nil {
			return err
		}
	case RuleSNAT:
		if err := lb.CheckRoutable(FieldRuleToSource, v.ToSource); err != nil {
			return err
		}
	default:
		return lb.NewFieldError("action", v.Action.String(), "is not known", ruleActions)
	}
	if v.Mark != 0 && v.Action == RuleDrop {
		return lb.NewFieldError(FieldRuleMark, strconv.FormatUint(uint64(v.Mark), 10), "has no effect on dropped packets", "0, or another action than drop")
	}
	return nil
}

// validateRuleInterface checks the name of an interface, which need not exist. "" means any. It
// must not contain a comma, which separates the members of a rule's key.
func validateRuleInterface(field, name string) error {
	if len(name) > lb.MaxDeviceName || name == "." || name == ".." || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == '/' || r == ':' || r == ',' || r == 0x7f }) {
		return lb.NewFieldError(field, name, "is not the name of an interface", "1 to 15 characters without spaces, slashes, colons and commas")
	}
	return nil
}

// Key returns the conditions of a rule in the form of --firewallRule. It is unique.
func (r Rule) Key() string {
	var b strings.Builder
	add := func(name, value string) {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name + ":" + value)
	}
	number := func(name string, n uint16) {
		if n != 0 {
			add(name, strconv.Itoa(int(n)))
		}
	}
	if r.Source.IsValid() {
		add(FieldRuleSource, r.Source.String())
	}
	if r.Destination.IsValid() {
		add(FieldRuleDestination, r.Destination.String())
	}
	number(FieldRuleMinSourcePort, r.SourcePorts.Min)
	number(FieldRuleMaxSourcePort, r.SourcePorts.Max)
	number(FieldRuleMinDestinationPort, r.DestinationPorts.Min)
	number(FieldRuleMaxDestinationPort, r.DestinationPorts.Max)
	number(FieldRuleProtocol, uint16(r.Protocol))
	number(FieldRuleProtocolMax, uint16(r.ProtocolMax))
	if r.Interface != "" {
		add(FieldRuleInterface, r.Interface)
	}
	if r.Preference != 0 || b.Len() == 0 {
		add(FieldRulePreference, strconv.Itoa(int(r.Preference)))
	}
	return b.String()
}

// CompareRules orders rules: by preference; then the more specific one first, by addresses, ports,
// protocol and interface; the rest by value.
func CompareRules(a, b *Rule) int {
	return cmp.Or(
		cmp.Compare(b.Preference, a.Preference), cmp.Compare(b.prefixBits(), a.prefixBits()),
		cmp.Compare(a.SourcePorts.count()+a.DestinationPorts.count(), b.SourcePorts.count()+b.DestinationPorts.count()),
		cmp.Compare(a.protocols(), b.protocols()), cmp.Compare(len(b.Interface), len(a.Interface)),
		lb.ComparePrefix(a.Source, b.Source), lb.ComparePrefix(a.Destination, b.Destination),
		a.SourcePorts.compare(b.SourcePorts), a.DestinationPorts.compare(b.DestinationPorts),
		cmp.Compare(a.Protocol, b.Protocol), strings.Compare(a.Interface, b.Interface),
	)
}

// prefixBits returns how specific a rule's addresses are. A prefix of length 0, which restricts the
// IP version, is more specific than no prefix.
func (r *Rule) prefixBits() (n int) {
	for _, p := range []netip.Prefix{r.Source, r.Destination} {
		if p.IsValid() {
			n += 1 + p.Bits()*128/p.Addr().BitLen()
		}
	}
	return n
}

func (p RulePorts) compare(q RulePorts) int {
	return cmp.Or(cmp.Compare(p.Min, q.Min), cmp.Compare(p.Max, q.Max))
}

func (p RulePorts) count() int {
	if p.Any() {
		return 65536
	}
	return int(p.Max) - int(p.Min)
}

func (r *Rule) protocols() int {
	switch {
	case r.ProtocolMax != 0:
	case r.Protocol == 0:
		return 256
	default:
		return 1
	}
	return int(r.ProtocolMax) - int(r.Protocol) + 1
}

// ruleRecord is a rule in the journal.
type ruleRecord struct {
	Source             netip.Prefix `json:"source,omitzero"`
	Destination        netip.Prefix `json:"destination,omitzero"`
	SourcePortMin      uint16       `json:"sourcePortMin,omitempty"`
	SourcePortMax      uint16       `json:"sourcePortMax,omitempty"`
	DestinationPortMin uint16       `json:"destinationPortMin,omitempty"`
	DestinationPortMax uint16       `json:"destinationPortMax,omitempty"`
	Protocol           uint8        `json:"protocol,omitempty"`
	ProtocolMax        uint8        `json:"protocolMax,omitempty"`
	Interface          string       `json:"interface,omitempty"`
	Preference         uint16       `json:"preference,omitempty"`
	Action             string       `json:"action"`
	Mark               uint32       `json:"mark,omitempty"`
	ToInterface        string       `json:"toInterface,omitempty"`
	ToSource           netip.Addr   `json:"toSource,omitzero"`
	OnDefault          bool         `json:"onDefault,omitempty"`
	Record             bool         `json:"record,omitempty"`
}

// MarshalRecord writes the journal's form.
func (r *Rule) MarshalRecord() ([]byte, error) {
	return json.Marshal(&ruleRecord{
		Source: r.Source, Destination: r.Destination,
		SourcePortMin: r.SourcePorts.Min, SourcePortMax: r.SourcePorts.Max, DestinationPortMin: r.DestinationPorts.Min, DestinationPortMax: r.DestinationPorts.Max,
		Protocol: r.Protocol, ProtocolMax: r.ProtocolMax, Interface: r.Interface, Preference: r.Preference,
		Action: r.Action.String(), Mark: r.Mark, ToInterface: r.ToInterface, ToSource: r.ToSource, OnDefault: r.OnDefault, Record: r.Record,
	})
}

// UnmarshalRule is the inverse of MarshalRecord, and validates the result. It refuses unknown
// members and words.
func UnmarshalRule(data []byte) (r Rule, err error) {
	var in ruleRecord
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return r, err
	}
	r = Rule{
		Source: in.Source, Destination: in.Destination,
		SourcePorts: RulePorts{in.SourcePortMin, in.SourcePortMax}, DestinationPorts: RulePorts{in.DestinationPortMin, in.DestinationPortMax},
		Protocol: in.Protocol, ProtocolMax: in.ProtocolMax, Interface: in.Interface, Preference: in.Preference,
	}
	r.RuleVerdict = RuleVerdict{Mark: in.Mark, ToInterface: in.ToInterface, ToSource: in.ToSource, OnDefault: in.OnDefault, Record: in.Record}
	if r.Action, err = ParseRuleAction(in.Action); err != nil {
		return r, err
	}
	return r.Normal(), r.Validate()
}
