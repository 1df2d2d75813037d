package traffic

import (
	"math"
	"net/http"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// policies returns how policers are asked about.
func policies() objects.Single[v1.Policy, policy.Policer] {
	return objects.Single[v1.Policy, policy.Policer]{Word: "policer", Parse: policerOf, Words: policyWord}
}

// CreatePolicy creates or changes a policer.
func (a *API) CreatePolicy(w http.ResponseWriter, r *http.Request) {
	policies().Create(a.Objects, w, r, a.Store.Policers)
}

func policerOf(body *v1.Policy) (p policy.Policer, err error) {
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

// attachmentOf returns what a policer or mirror is attached to.
func attachmentOf(to int, name, direction string) (at policy.Attachment, err error) {
	at = policy.Attachment{Name: name, Direction: policy.Direction(direction)}
	at.To, err = policy.ParseAttachTo(strconv.Itoa(to))
	return at, err
}

// rateOf returns a rate by its text, or by the contract's number of Mbit/s.
func rateOf(field, text string, megabits float64) (policy.Rate, error) {
	if text != "" {
		return policy.ParseRate(field, text)
	}
	if bits := math.Round(megabits * 1e6); bits >= policy.MinBitRate && bits <= policy.MaxBitRate {
		return policy.Rate{PerSecond: uint64(bits)}, nil
	}
	return policy.ParseRate(field, strconv.FormatFloat(megabits, 'f', -1, 64))
}

func policyWord(field string) string {
	switch field {
	case lb.FieldIdent, lb.FieldName:
		return "policyIdent"
	case lb.FieldCommittedRate:
		return "committedInfoRate"
	case lb.FieldPeakRate:
		return "peakInfoRate"
	case lb.FieldCommittedBurst:
		return "committedBlkSize"
	case lb.FieldExcessBurst:
		return "excessBlkSize"
	case lb.FieldTarget:
		return "polObjName"
	}
	return ""
}

// GetPolicies replies with all policers.
func (a *API) GetPolicies(w http.ResponseWriter, r *http.Request) {
	out := rest.NewList(w, "polAttr")
	for p := range a.Store.Policers.All(a.Store.Snapshot()) {
		if r.Context().Err() != nil || !out.Item(policyAnswer(&p, a.DataPath.PolicerStats(p.Name))) {
			return
		}
	}
	out.End()
}

// policyAnswer returns a policer as the contract writes it, so that it can be sent back as it is.
func policyAnswer(p *policy.Policer, stats policy.PolicerStats) *v1.Policy {
	committed, excess := p.Bursts()
	count := func(color int) *v1.PolicyCount {
		return &v1.PolicyCount{Packets: stats.Packets[color], Bytes: stats.Bytes[color]}
	}
	out := &v1.Policy{
		PolicyIdent: p.Name, Attached: stats.Attached, Green: count(0), Yellow: count(1), Red: count(2),
		PolicyInfo: v1.PolicyInfo{
			ColorAware: p.ColorAware, CommittedRate: p.Committed.String(), CommittedInfoRate: p.Committed.Megabits(),
			CommittedBlkSize: int64(committed), ExcessBlkSize: int64(excess),
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

// DeletePolicy deletes a policer.
func (a *API) DeletePolicy(w http.ResponseWriter, r *http.Request, ident string) {
	objects.DeleteOne(a.Objects, w, r, a.Store.Policers, ident)
}

// showPolicy returns a policer as POST takes it.
func showPolicy(p *policy.Policer) any {
	out := policyAnswer(p, policy.PolicerStats{})
	out.Green, out.Yellow, out.Red = nil, nil, nil
	out.PolicyInfo.CommittedBlkSize, out.PolicyInfo.ExcessBlkSize = int64(p.CommittedBurst), int64(p.ExcessBurst)
	return out
}
