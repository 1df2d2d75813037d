package speaker

import (
	"net/netip"
	"strings"

	"github.com/osrg/gobgp/v4/pkg/config/oc"

	"loxilb/internal/lb/bgp"
)

func (c *File) policyOf(from *oc.PolicyDefinition) bgp.Policy {
	p := bgp.Policy{Name: from.Name}
	for i := range from.Statements {
		s := &from.Statements[i]
		if s.Conditions.CallPolicy != "" {
			c.note("policy " + p.Name + ": call-policy is left out")
		}
		p.Statements = append(p.Statements, bgp.Statement{Name: s.Name, Conditions: conditionsOf(&s.Conditions), Actions: actionsOf(&s.Actions)})
	}
	return p
}

// match returns a condition by a set; "any" is the default.
func match(set, option string) bgp.SetMatch {
	if set == "" || strings.EqualFold(option, bgp.MatchAny) {
		option = ""
	}
	return bgp.SetMatch{Set: set, Match: strings.ToLower(option)}
}

func conditionsOf(from *oc.Conditions) bgp.Conditions {
	b := &from.BgpConditions
	c := bgp.Conditions{
		Prefix:         match(from.MatchPrefixSet.PrefixSet, string(from.MatchPrefixSet.MatchSetOptions)),
		Neighbor:       match(from.MatchNeighborSet.NeighborSet, string(from.MatchNeighborSet.MatchSetOptions)),
		ASPath:         match(b.MatchAsPathSet.AsPathSet, string(b.MatchAsPathSet.MatchSetOptions)),
		Community:      match(b.MatchCommunitySet.CommunitySet, string(b.MatchCommunitySet.MatchSetOptions)),
		ExtCommunity:   match(b.MatchExtCommunitySet.ExtCommunitySet, string(b.MatchExtCommunitySet.MatchSetOptions)),
		LargeCommunity: match(b.MatchLargeCommunitySet.LargeCommunitySet, string(b.MatchLargeCommunitySet.MatchSetOptions)),
	}
	for _, hop := range b.NextHopInList {
		c.NextHops = append(c.NextHops, netip.Addr(hop).String())
	}
	for _, family := range b.AfiSafiInList {
		c.Families = append(c.Families, string(family))
	}
	if b.AsPathLength.Operator != "" {
		c.ASPathLength = bgp.Length{Operator: strings.TrimPrefix(string(b.AsPathLength.Operator), "attribute-"), Value: b.AsPathLength.Value}
	}
	if b.RouteType != oc.ROUTE_TYPE_NONE {
		c.RouteType = string(b.RouteType)
	}
	if b.RpkiValidationResult != oc.RPKI_VALIDATION_RESULT_TYPE_NONE {
		c.RPKI = string(b.RpkiValidationResult)
	}
	return c
}

func actionsOf(from *oc.Actions) bgp.Actions {
	b := &from.BgpActions
	a := bgp.Actions{
		MED: string(b.SetMed), NextHop: string(b.SetNextHop), LocalPref: b.SetLocalPref,
		Community:      communities(b.SetCommunity.Options, b.SetCommunity.SetCommunityMethod.CommunitiesList),
		ExtCommunity:   communities(b.SetExtCommunity.Options, b.SetExtCommunity.SetExtCommunityMethod.CommunitiesList),
		LargeCommunity: communities(string(b.SetLargeCommunity.Options), b.SetLargeCommunity.SetLargeCommunityMethod.CommunitiesList),
		Prepend:        bgp.Prepend{AS: b.SetAsPathPrepend.As, Repeat: b.SetAsPathPrepend.RepeatN},
	}
	if from.RouteDisposition != oc.ROUTE_DISPOSITION_NONE {
		a.Disposition = string(from.RouteDisposition)
	}
	return a
}

func communities(option string, values []string) bgp.SetCommunity {
	if len(values) == 0 {
		return bgp.SetCommunity{}
	}
	return bgp.SetCommunity{Option: strings.ToLower(option), Values: values}
}
