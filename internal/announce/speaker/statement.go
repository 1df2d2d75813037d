package speaker

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/osrg/gobgp/v4/api"

	"loxilb/internal/lb/bgp"
)

// neighborSet is a set of one neighbor; nil: all neighbors.
type neighborSet struct {
	name string
	addr netip.Addr
}

func (n *neighborSet) match() *api.MatchSet {
	if n == nil {
		return nil
	}
	return &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: n.name}
}

// meets reports whether the neighbor meets a condition of a statement. A statement of gobgp has one
// set of neighbors, so this one is decided here.
func (n *neighborSet) meets(m bgp.SetMatch, sets []bgp.DefinedSet) bool {
	if m.Set == "" {
		return true
	}
	is := slices.ContainsFunc(sets, func(s bgp.DefinedSet) bool {
		return s.Type == bgp.NeighborSet && s.Name == m.Set && slices.ContainsFunc(s.Members, n.within)
	})
	return is != (m.Match == "invert")
}

// within reports whether the neighbor is an address, or of a prefix.
func (n *neighborSet) within(member string) bool {
	if p, err := netip.ParsePrefix(member); err == nil {
		return p.Contains(n.addr)
	}
	a, err := netip.ParseAddr(member)
	return err == nil && a.WithZone("") == n.addr
}

// statement returns a statement of a policy in gobgp's form, for one neighbor or all.
func (b *ruleBuilder) statement(policy string, s bgp.Statement, of *neighborSet) (*api.Statement, error) {
	conditions, err := apiConditions(s.Conditions)
	if err != nil {
		return nil, fmt.Errorf("policy %q, statement %q: %w", policy, s.Name, err)
	}
	if of != nil {
		conditions.NeighborSet = of.match()
	}
	actions, err := apiActions(s.Actions)
	if err != nil {
		return nil, fmt.Errorf("policy %q, statement %q: %w", policy, s.Name, err)
	}
	return &api.Statement{Name: b.name(policy + "-" + s.Name), Conditions: conditions, Actions: actions}, nil
}

func apiConditions(c bgp.Conditions) (*api.Conditions, error) {
	a := &api.Conditions{NextHopInList: c.NextHops}
	for _, m := range []struct {
		from bgp.SetMatch
		to   **api.MatchSet
	}{
		{c.Prefix, &a.PrefixSet},
		{c.Neighbor, &a.NeighborSet},
		{c.ASPath, &a.AsPathSet},
		{c.Community, &a.CommunitySet},
		{c.ExtCommunity, &a.ExtCommunitySet},
		{c.LargeCommunity, &a.LargeCommunitySet},
	} {
		if m.from.Set == "" {
			continue
		}
		how, err := enumValue(m.from.Match, map[string]api.MatchSet_Type{
			"": api.MatchSet_TYPE_ANY, "any": api.MatchSet_TYPE_ANY, "all": api.MatchSet_TYPE_ALL, "invert": api.MatchSet_TYPE_INVERT,
		})
		if err != nil {
			return nil, err
		}
		*m.to = &api.MatchSet{Type: how, Name: m.from.Set}
	}
	for _, f := range c.Families {
		afi, err := enumValue(f, map[string]api.Family_Afi{"ipv4-unicast": api.Family_AFI_IP, "ipv6-unicast": api.Family_AFI_IP6})
		if err != nil {
			return nil, err
		}
		a.AfiSafiIn = append(a.AfiSafiIn, &api.Family{Afi: afi, Safi: api.Family_SAFI_UNICAST})
	}
	if c.ASPathLength != (bgp.Length{}) {
		how, err := enumValue(c.ASPathLength.Operator, map[string]api.Comparison{
			"eq": api.Comparison_COMPARISON_EQ, "ge": api.Comparison_COMPARISON_GE, "le": api.Comparison_COMPARISON_LE,
		})
		if err != nil {
			return nil, err
		}
		a.AsPathLength = &api.AsPathLength{Type: how, Length: c.ASPathLength.Value}
	}
	var err error
	a.RpkiResult, err = enumValue(c.RPKI, map[string]api.ValidationState{
		"": 0, "none": api.ValidationState_VALIDATION_STATE_NONE, "valid": api.ValidationState_VALIDATION_STATE_VALID,
		"invalid": api.ValidationState_VALIDATION_STATE_INVALID, "not-found": api.ValidationState_VALIDATION_STATE_NOT_FOUND,
	})
	if err != nil {
		return nil, err
	}
	a.RouteType, err = enumValue(c.RouteType, map[string]api.Conditions_RouteType{
		"": 0, "internal": api.Conditions_ROUTE_TYPE_INTERNAL, "external": api.Conditions_ROUTE_TYPE_EXTERNAL, "local": api.Conditions_ROUTE_TYPE_LOCAL,
	})
	return a, err
}

func apiActions(x bgp.Actions) (*api.Actions, error) {
	a := &api.Actions{}
	var err error
	a.RouteAction, err = enumValue(x.Disposition, map[string]api.RouteAction{
		"": 0, "none": 0, "accept-route": api.RouteAction_ROUTE_ACTION_ACCEPT, "reject-route": api.RouteAction_ROUTE_ACTION_REJECT,
	})
	if err != nil {
		return nil, err
	}
	if x.MED != "" {
		if a.Med, err = apiMED(x.MED); err != nil {
			return nil, err
		}
	}
	switch x.NextHop {
	case "":
	case "self":
		a.Nexthop = &api.NexthopAction{Self: true}
	case "unchanged":
		a.Nexthop = &api.NexthopAction{Unchanged: true}
	case "peer-address":
		a.Nexthop = &api.NexthopAction{PeerAddress: true}
	default:
		a.Nexthop = &api.NexthopAction{Address: x.NextHop}
	}
	if x.LocalPref != 0 {
		a.LocalPref = &api.LocalPrefAction{Value: x.LocalPref}
	}
	for _, c := range []struct {
		from bgp.SetCommunity
		to   **api.CommunityAction
	}{
		{x.Community, &a.Community},
		{x.ExtCommunity, &a.ExtCommunity},
		{x.LargeCommunity, &a.LargeCommunity},
	} {
		if *c.to, err = apiCommunities(c.from); err != nil {
			return nil, err
		}
	}
	a.AsPrepend, err = apiPrepend(x.Prepend)
	return a, err
}

func apiCommunities(s bgp.SetCommunity) (*api.CommunityAction, error) {
	if s.Option == "" && len(s.Values) == 0 {
		return nil, nil
	}
	how, err := enumValue(s.Option, map[string]api.CommunityAction_Type{
		"add": api.CommunityAction_TYPE_ADD, "remove": api.CommunityAction_TYPE_REMOVE, "replace": api.CommunityAction_TYPE_REPLACE,
	})
	if err != nil {
		return nil, err
	}
	return &api.CommunityAction{Type: how, Communities: s.Values}, nil
}

func apiMED(text string) (*api.MedAction, error) {
	value, err := strconv.ParseInt(strings.TrimPrefix(text, "+"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("MED %q is not a number", text)
	}
	if strings.ContainsAny(text[:1], "+-") {
		return &api.MedAction{Type: api.MedAction_TYPE_MOD, Value: value}, nil
	}
	return &api.MedAction{Type: api.MedAction_TYPE_REPLACE, Value: value}, nil
}

func apiPrepend(p bgp.Prepend) (*api.AsPrependAction, error) {
	switch p.AS {
	case "":
		return nil, nil
	case "last-as":
		return &api.AsPrependAction{UseLeftMost: true, Repeat: uint32(p.Repeat)}, nil
	}
	asn, err := strconv.ParseUint(p.AS, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("AS %q is not a number", p.AS)
	}
	return &api.AsPrependAction{Asn: uint32(asn), Repeat: uint32(p.Repeat)}, nil
}

// enumValue returns the API's value of a word.
func enumValue[K ~string, T any](text K, words map[K]T) (T, error) {
	value, known := words[text]
	if !known {
		return value, fmt.Errorf("%q is not known", text)
	}
	return value, nil
}

// apiSet returns a set as gobgp takes it.
func apiSet(s bgp.DefinedSet) (*api.DefinedSet, error) {
	t, err := enumValue(s.Type, map[bgp.SetType]api.DefinedType{
		bgp.PrefixSet:         api.DefinedType_DEFINED_TYPE_PREFIX,
		bgp.NeighborSet:       api.DefinedType_DEFINED_TYPE_NEIGHBOR,
		bgp.CommunitySet:      api.DefinedType_DEFINED_TYPE_COMMUNITY,
		bgp.ExtCommunitySet:   api.DefinedType_DEFINED_TYPE_EXT_COMMUNITY,
		bgp.ASPathSet:         api.DefinedType_DEFINED_TYPE_AS_PATH,
		bgp.LargeCommunitySet: api.DefinedType_DEFINED_TYPE_LARGE_COMMUNITY,
	})
	if err != nil {
		return nil, fmt.Errorf("set %q: type %w", s.Name, err)
	}
	set := &api.DefinedSet{DefinedType: t, Name: s.Name, List: s.Members}
	for _, rule := range s.Prefixes {
		p, err := apiPrefix(rule)
		if err != nil {
			return nil, fmt.Errorf("set %q: %w", s.Name, err)
		}
		set.Prefixes = append(set.Prefixes, p)
	}
	return set, nil
}

func apiPrefix(r bgp.PrefixRule) (*api.Prefix, error) {
	p, err := netip.ParsePrefix(r.Prefix)
	if err != nil {
		return nil, fmt.Errorf("prefix %q: %w", r.Prefix, err)
	}
	least, most := uint64(p.Bits()), uint64(p.Bits())
	if r.Lengths != "" {
		from, to, _ := strings.Cut(r.Lengths, "..")
		var fromErr, toErr error
		least, fromErr = strconv.ParseUint(from, 10, 8)
		most, toErr = strconv.ParseUint(to, 10, 8)
		if fromErr != nil || toErr != nil {
			return nil, fmt.Errorf("prefix %q: lengths %q are not a range such as 24..32", r.Prefix, r.Lengths)
		}
	}
	return &api.Prefix{IpPrefix: r.Prefix, MaskLengthMin: uint32(least), MaskLengthMax: uint32(most)}, nil
}
