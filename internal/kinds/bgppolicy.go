package kinds

import (
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
)

// BGPPolicy registers BGP policies.
func BGPPolicy() *Kind[bgp.Policy, v1.BgpPolicy] {
	stored := asJSONOf(bgp.Policy.Key, bgp.Policy.Validate, func(p bgp.Policy) bgp.Policy {
		p.Statements = slices.Clone(p.Statements)
		return p
	})
	stored.Max, stored.Plural = 1024, "BGP policies"
	return &Kind[bgp.Policy, v1.BgpPolicy]{
		Words:  Words{Name: BGPPolicyName, Document: "BGPPolicy", Command: "bgppolicy", List: "bgpPolicyAttr", Exported: true, Verified: true},
		Stored: stored,
		API: API[bgp.Policy, v1.BgpPolicy]{
			Path: "/config/bgp/policy/definitions", ObjectPath: "/{policy_name}", Read: readBGPPolicy, Show: showBGPPolicy,
		},
		CLI: CLI[v1.BgpPolicy]{
			Texts: Texts{Singular: "a BGP policy", Plural: "BGP policies", Argument: "NAME", Sample: "low"},
			Name:  func(p *v1.BgpPolicy) string { return p.Name },
			Columns: []Column[*v1.BgpPolicy]{
				{Header: "Name", Cell: func(p *v1.BgpPolicy) string { return p.Name }},
				{Header: "Statements", Cell: func(p *v1.BgpPolicy) string {
					var names []string
					for i := range p.Statements {
						names = append(names, p.Statements[i].Name)
					}
					return orDash(strings.Join(names, "\n"))
				}},
			},
		},
	}
}

func readBGPPolicy(body *v1.BgpPolicy) (p bgp.Policy, err error) {
	p.Name = body.Name
	for i, s := range append(slices.Clone(body.Statements), body.Statement...) {
		at := bgp.FieldStatements + "[" + strconv.Itoa(i) + "]."
		statement := bgp.Statement{Name: s.Name}
		if statement.Conditions, err = readConditions(at, s.Conditions); err != nil {
			return p, err
		}
		if statement.Actions, err = readActions(at, s.Actions); err != nil {
			return p, err
		}
		p.Statements = append(p.Statements, statement)
	}
	return p, nil
}

func readConditions(at string, body *v1.BgpConditions) (c bgp.Conditions, err error) {
	if body == nil {
		return c, nil
	}
	if m := body.MatchPrefixSet; m != nil {
		c.Prefix = setMatch(m.PrefixSet, m.MatchSetOption)
	}
	if m := body.MatchNeighborSet; m != nil {
		c.Neighbor = setMatch(m.NeighborSet, m.MatchSetOption)
	}
	more := body.BgpConditions
	if more == nil {
		return c, nil
	}
	c.Families, c.NextHops = slices.Clone(more.AfiSafiIn), slices.Clone(more.NextHopInList)
	c.RPKI, c.RouteType = more.Rpki, strings.ToLower(more.RouteType)
	if m := more.MatchAsPathSet; m != nil {
		c.ASPath = setMatch(m.AsPathSet, m.MatchSetOptions)
	}
	c.Community = communityMatch(more.MatchCommunitySet)
	c.ExtCommunity = communityMatch(more.MatchExtCommunitySet)
	c.LargeCommunity = communityMatch(more.MatchLargeCommunitySet)
	if l := more.AsPathLength; l != nil && *l != (v1.BgpLength{}) {
		c.ASPathLength.Operator = strings.ToLower(l.Operator)
		c.ASPathLength.Value, err = uint32Of(at+"conditions.bgpConditions.asPathLength.value", l.Value)
	}
	return c, err
}

func setMatch(set, match string) bgp.SetMatch {
	if set == "" && match != "" { // clients of the existing loxilb fill in unused conditions
		return bgp.SetMatch{}
	}
	if match = strings.ToLower(match); match == bgp.MatchAny {
		match = ""
	}
	return bgp.SetMatch{Set: set, Match: match}
}

func communityMatch(m *v1.BgpCommunityMatch) bgp.SetMatch {
	if m == nil {
		return bgp.SetMatch{}
	}
	return setMatch(m.CommunitySet, m.MatchSetOptions)
}

func readActions(at string, body *v1.BgpActions) (a bgp.Actions, err error) {
	if body == nil {
		return a, nil
	}
	a.Disposition = strings.ToLower(body.RouteDisposition)
	more := body.BgpActions
	if more == nil {
		return a, nil
	}
	a.MED, a.NextHop = more.SetMed, more.SetNextHop
	a.Community, a.ExtCommunity = communityAction(more.SetCommunity), communityAction(more.SetExtCommunity)
	a.LargeCommunity = communityAction(more.SetLargeCommunity)
	at += "actions.bgpActions."
	if a.LocalPref, err = uint32Of(at+"setLocalPerf", more.SetLocalPerf); err != nil {
		return a, err
	}
	if prepend := more.SetAsPathPrepend; prepend != nil {
		a.Prepend.AS = prepend.As
		a.Prepend.Repeat, err = byteOf(at+"setAsPathPrepend.repeatN", prepend.RepeatN)
	}
	return a, err
}

func communityAction(body *v1.BgpSetCommunity) bgp.SetCommunity {
	if body == nil || len(body.SetCommunityMethod) == 0 && body.Options == "" {
		return bgp.SetCommunity{}
	}
	return bgp.SetCommunity{Option: strings.ToLower(body.Options), Values: slices.Clone(body.SetCommunityMethod)}
}

// uint32Of checks a number of the API that must fit into 32 bits.
func uint32Of(field string, n int64) (uint32, error) {
	if n < 0 || n > math.MaxUint32 {
		return 0, lb.NewFieldError(field, strconv.FormatInt(n, 10), "is out of range", "0 to 4294967295")
	}
	return uint32(n), nil
}

func showBGPPolicy(p *bgp.Policy) *v1.BgpPolicy {
	out := &v1.BgpPolicy{Name: p.Name, Statements: []v1.BgpStatement{}}
	for i := range p.Statements {
		s := &p.Statements[i]
		out.Statements = append(out.Statements, v1.BgpStatement{Name: s.Name, Conditions: showConditions(&s.Conditions), Actions: showActions(&s.Actions)})
	}
	return out
}

func showConditions(c *bgp.Conditions) *v1.BgpConditions {
	out := &v1.BgpConditions{}
	if c.Prefix.Set != "" {
		out.MatchPrefixSet = &v1.BgpPrefixMatch{PrefixSet: c.Prefix.Set, MatchSetOption: c.Prefix.Match}
	}
	if c.Neighbor.Set != "" {
		out.MatchNeighborSet = &v1.BgpNeighborMatch{NeighborSet: c.Neighbor.Set, MatchSetOption: c.Neighbor.Match}
	}
	more := v1.BgpRouteConditions{
		AfiSafiIn: slices.Clone(c.Families), NextHopInList: slices.Clone(c.NextHops), Rpki: c.RPKI, RouteType: c.RouteType,
		MatchCommunitySet: showCommunityMatch(c.Community), MatchExtCommunitySet: showCommunityMatch(c.ExtCommunity),
		MatchLargeCommunitySet: showCommunityMatch(c.LargeCommunity),
	}
	if c.ASPath.Set != "" {
		more.MatchAsPathSet = &v1.BgpAsPathMatch{AsPathSet: c.ASPath.Set, MatchSetOptions: c.ASPath.Match}
	}
	if c.ASPathLength != (bgp.Length{}) {
		more.AsPathLength = &v1.BgpLength{Operator: c.ASPathLength.Operator, Value: int64(c.ASPathLength.Value)}
	}
	if !reflect.ValueOf(more).IsZero() {
		out.BgpConditions = &more
	}
	if *out == (v1.BgpConditions{}) {
		return nil
	}
	return out
}

func showCommunityMatch(m bgp.SetMatch) *v1.BgpCommunityMatch {
	if m.Set == "" {
		return nil
	}
	return &v1.BgpCommunityMatch{CommunitySet: m.Set, MatchSetOptions: m.Match}
}

func showActions(a *bgp.Actions) *v1.BgpActions {
	out := &v1.BgpActions{RouteDisposition: a.Disposition}
	more := v1.BgpRouteActions{
		SetMed: a.MED, SetNextHop: a.NextHop, SetLocalPerf: int64(a.LocalPref),
		SetCommunity: showCommunityAction(a.Community), SetExtCommunity: showCommunityAction(a.ExtCommunity),
		SetLargeCommunity: showCommunityAction(a.LargeCommunity),
	}
	if a.Prepend != (bgp.Prepend{}) {
		more.SetAsPathPrepend = &v1.BgpPrepend{As: a.Prepend.AS, RepeatN: int(a.Prepend.Repeat)}
	}
	if more != (v1.BgpRouteActions{}) {
		out.BgpActions = &more
	}
	if *out == (v1.BgpActions{}) {
		return nil
	}
	return out
}

func showCommunityAction(s bgp.SetCommunity) *v1.BgpSetCommunity {
	if s.Option == "" {
		return nil
	}
	return &v1.BgpSetCommunity{Options: s.Option, SetCommunityMethod: slices.Clone(s.Values)}
}
