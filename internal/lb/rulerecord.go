package lb

import (
	"bytes"
	"encoding/json"
	"net/netip"
)

// ruleRecord is a rule as journals have it.
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

// MarshalRecord writes it as journals have it.
func (r *Rule) MarshalRecord() ([]byte, error) {
	return json.Marshal(&ruleRecord{
		Source: r.Source, Destination: r.Destination,
		SourcePortMin: r.SourcePorts.Min, SourcePortMax: r.SourcePorts.Max, DestinationPortMin: r.DestinationPorts.Min, DestinationPortMax: r.DestinationPorts.Max,
		Protocol: r.Protocol, ProtocolMax: r.ProtocolMax, Interface: r.Interface, Preference: r.Preference,
		Action: r.Action.String(), Mark: r.Mark, ToInterface: r.ToInterface, ToSource: r.ToSource, OnDefault: r.OnDefault, Record: r.Record,
	})
}

// UnmarshalRule parses what MarshalRecord writes, and validates it. It refuses unknown members and
// words.
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
