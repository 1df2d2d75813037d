package kinds

import (
	"slices"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb/bgp"
)

// BGPApplication registers where BGP policies are applied.
func BGPApplication() *Kind[bgp.Application, v1.BgpPolicyApplication] {
	stored := asJSONOf(bgp.Application.Key, bgp.Application.Validate, func(a bgp.Application) bgp.Application {
		a.Policies = slices.Clone(a.Policies)
		return a
	})
	stored.Max, stored.Plural = 2048, "applications of BGP policies"
	return &Kind[bgp.Application, v1.BgpPolicyApplication]{
		Words: Words{
			Name: BGPApplicationName, Document: "BGPPolicyApply", Command: "bgpapply", List: "bgpPolicyApplyAttr", Exported: true, Verified: true,
		},
		Stored: stored,
		API: API[bgp.Application, v1.BgpPolicyApplication]{
			Path: "/config/bgp/policy/apply", ObjectPath: "/{ip_address}/{policy_type}", Key: neighborKey, Read: readApplication, Show: showApplication,
			Merge: func(stored, posted bgp.Application, _ *v1.BgpPolicyApplication) bgp.Application {
				return stored.With(posted) // as in the contract
			},
		},
		CLI: CLI[v1.BgpPolicyApplication]{
			Texts: Texts{Singular: "policies of a BGP neighbor", Plural: "where BGP policies are applied", Argument: "PEER/DIRECTION", Sample: "10.0.0.2/export", Create: " --policy=low"},
			Name:  func(a *v1.BgpPolicyApplication) string { return a.IpAddress + "/" + a.PolicyType },
			Set: func(a *v1.BgpPolicyApplication, name string) {
				a.IpAddress, a.PolicyType, _ = strings.Cut(name, "/")
			},
			Flags: []Flag[*v1.BgpPolicyApplication]{
				{Name: "policy", Usage: "a policy, added after the applied ones; may be repeated", Set: func(a *v1.BgpPolicyApplication, value string) error {
					a.Policies = append(a.Policies, value)
					return nil
				}},
				{Name: "action", Usage: "accept (the default) or reject, for routes that no policy decides about", Set: func(a *v1.BgpPolicyApplication, value string) error {
					a.RouteAction = value
					return nil
				}},
			},
			Columns: []Column[*v1.BgpPolicyApplication]{
				{Header: "Peer", Cell: func(a *v1.BgpPolicyApplication) string { return a.IpAddress }},
				{Header: "Direction", Cell: func(a *v1.BgpPolicyApplication) string { return a.PolicyType }},
				{Header: "Policies", Cell: func(a *v1.BgpPolicyApplication) string { return orDash(strings.Join(a.Policies, "\n")) }},
				{Header: "Action", Cell: func(a *v1.BgpPolicyApplication) string { return a.RouteAction }},
			},
		},
	}
}

func readApplication(body *v1.BgpPolicyApplication) (a bgp.Application, err error) {
	a = bgp.Application{Neighbor: body.IpAddress, Policies: body.Policies}
	if addr, err := bgp.ParseNeighborAddr(a.Neighbor); err == nil {
		a.Neighbor = addr.String()
	}
	if a.Import, err = bgp.ParseDirection(body.PolicyType); err != nil {
		return a, err
	}
	a.Reject, err = bgp.ParseRouteAction(body.RouteAction)
	return a, err
}

func showApplication(a *bgp.Application) *v1.BgpPolicyApplication {
	return &v1.BgpPolicyApplication{
		IpAddress: a.Neighbor, PolicyType: a.Direction(), Policies: slices.Clone(a.Policies), RouteAction: a.RouteAction(),
	}
}
