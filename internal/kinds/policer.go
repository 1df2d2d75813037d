package kinds

import (
	"math"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// Policer registers policers.
func Policer() *Kind[policy.Policer, v1.Policy] {
	words := Words{
		Name: "policer", Document: PolicerDocument, Command: "policy", Aliases: []string{"pol", "policys", "pols", "polices"},
		List: "polAttr", Exported: true, Verified: true,
	}
	stored := asJSON(func(p policy.Policer) string { return p.Name }, policy.Policer.Validate)
	stored.Max, stored.Shared = 8192, true // the existing loxilb's limit
	return &Kind[policy.Policer, v1.Policy]{
		Words:  words,
		Stored: uniquePerTarget(stored, words.Name, func(p policy.Policer) policy.Attachment { return p.Attachment }),
		API: API[policy.Policer, v1.Policy]{
			Path: "/config/policy", ObjectPath: "/ident/{ident}",
			Read: func(body *v1.Policy) (policy.Policer, error) { p, err := readPolicer(body); return p.Normal(), err },
			Show: showPolicer,
			Fields: map[string]string{
				lb.FieldIdent: "policyIdent", lb.FieldName: "policyIdent", lb.FieldCommittedRate: "committedInfoRate", lb.FieldPeakRate: "peakInfoRate",
				lb.FieldCommittedBurst: "committedBlkSize", lb.FieldExcessBurst: "excessBlkSize", lb.FieldTarget: "polObjName",
			},
		},
		CLI: CLI[v1.Policy]{
			Texts:   Texts{Singular: "a policer", Plural: "policers", Details: "counters", Argument: "IDENT", Sample: "pol-hs0"},
			Name:    func(p *v1.Policy) string { return p.PolicyIdent },
			Columns: policerColumns(),
		},
	}
}

// readPolicer returns the policer that a body describes.
func readPolicer(body *v1.Policy) (p policy.Policer, err error) {
	info := &body.PolicyInfo
	if info.Type != 0 && info.Type != 1 {
		return p, lb.NewFieldError("type", strconv.Itoa(info.Type), "is not a type of policer", "0 (two rates) or 1 (one rate)")
	}
	if info.CommittedBlkSize < 0 || info.ExcessBlkSize < 0 {
		return p, lb.NewFieldError("committedBlkSize", strconv.FormatInt(min(info.CommittedBlkSize, info.ExcessBlkSize), 10), "is negative", "0 or more")
	}
	p = policy.Policer{
		Name: body.PolicyIdent, OneRate: info.Type == 1, ColorAware: info.ColorAware,
		CommittedBurst: uint64(info.CommittedBlkSize), ExcessBurst: uint64(info.ExcessBlkSize),
	}
	if p.Committed, err = rateOf("committedRate", info.CommittedRate, info.CommittedInfoRate); err != nil {
		return p, err
	}
	if !p.OneRate {
		if p.Peak, err = rateOf("peakRate", info.PeakRate, info.PeakInfoRate); err != nil {
			return p, err
		}
	}
	p.Attachment, err = attachmentOf(body.TargetObject.Attachment, body.TargetObject.PolObjName, body.TargetObject.Direction)
	return p, err
}

// rateOf returns a rate from its text, or from the existing loxilb's number of Mbit/s.
func rateOf(field, text string, megabits float64) (policy.Rate, error) {
	if text != "" {
		return policy.ParseRate(field, text)
	}
	if bits := math.Round(megabits * 1e6); bits >= policy.MinBitRate && bits <= policy.MaxBitRate {
		return policy.Rate{PerSecond: uint64(bits)}, nil
	}
	return policy.ParseRate(field, strconv.FormatFloat(megabits, 'f', -1, 64))
}

// showPolicer returns a policer in the existing loxilb's form.
func showPolicer(p *policy.Policer) *v1.Policy {
	out := &v1.Policy{
		PolicyIdent: p.Name,
		PolicyInfo: v1.PolicyInfo{
			ColorAware: p.ColorAware, CommittedRate: p.Committed.String(), CommittedInfoRate: p.Committed.Megabits(),
			CommittedBlkSize: int64(p.CommittedBurst), ExcessBlkSize: int64(p.ExcessBurst),
		},
		TargetObject: v1.PolicyTarget{Attachment: int(p.Attachment.To), PolObjName: p.Attachment.Name, Direction: string(p.Attachment.Direction)},
	}
	if p.OneRate {
		out.PolicyInfo.Type = 1
		return out
	}
	out.PolicyInfo.PeakRate, out.PolicyInfo.PeakInfoRate = p.Peak.String(), p.Peak.Megabits()
	return out
}

// policerColumns has the existing loxicmd's columns, and counts of packets by color.
func policerColumns() []Column[*v1.Policy] {
	return []Column[*v1.Policy]{
		{Header: "Ident", Cell: func(p *v1.Policy) string { return p.PolicyIdent }},
		{Header: "peakInfoRate", Cell: func(p *v1.Policy) string { return rateCell(p.PolicyInfo.PeakRate, p.PolicyInfo.PeakInfoRate) }},
		{Header: "committedInfoRate", Cell: func(p *v1.Policy) string {
			return rateCell(p.PolicyInfo.CommittedRate, p.PolicyInfo.CommittedInfoRate)
		}},
		{Header: "excessBlkSize", Wide: true, Cell: func(p *v1.Policy) string { return strconv.FormatInt(p.PolicyInfo.ExcessBlkSize, 10) }},
		{Header: "committedBlkSize", Wide: true, Cell: func(p *v1.Policy) string { return strconv.FormatInt(p.PolicyInfo.CommittedBlkSize, 10) }},
		{Header: "policyType", Wide: true, Cell: func(p *v1.Policy) string { return strconv.Itoa(p.PolicyInfo.Type) }},
		{Header: "ColorAware", Wide: true, Cell: func(p *v1.Policy) string { return strconv.FormatBool(p.PolicyInfo.ColorAware) }},
		{Header: "polObjName", Wide: true, Cell: func(p *v1.Policy) string { return p.TargetObject.PolObjName }},
		{Header: "attachment", Wide: true, Cell: func(p *v1.Policy) string { return strconv.Itoa(p.TargetObject.Attachment) }},
		{Header: "Direction", Wide: true, Cell: func(p *v1.Policy) string { return p.TargetObject.Direction }},
		{Header: "Attached", Wide: true, Cell: func(p *v1.Policy) string { return strconv.Itoa(p.Attached) }},
		{Header: "Green", Wide: true, Cell: func(p *v1.Policy) string { return countCell(p.Green) }},
		{Header: "Yellow", Wide: true, Cell: func(p *v1.Policy) string { return countCell(p.Yellow) }},
		{Header: "Red", Wide: true, Cell: func(p *v1.Policy) string { return countCell(p.Red) }},
	}
}

// rateCell returns a whole number of Mbit/s without a unit, like the existing loxicmd.
func rateCell(text string, megabits float64) string {
	if megabits == float64(int64(megabits)) && (megabits > 0 || text == "") {
		return strconv.FormatInt(int64(megabits), 10)
	}
	return text
}

// countCell is packets:bytes.
func countCell(c *v1.PolicyCount) string {
	if c == nil {
		return "-"
	}
	return strconv.FormatUint(c.Packets, 10) + ":" + strconv.FormatUint(c.Bytes, 10)
}
