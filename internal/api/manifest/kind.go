// Package manifest reads the files that users keep of what they want: YAML with any number of
// documents, JSON, and the lists that the contract's `loxicmd save` writes. It knows the kinds of
// object by name, and where in its file each property stands; what an object means, the server
// says.
package manifest

import "strings"

// APIVersion is that of all documents.
const APIVersion = "netlox/v1"

// Kind is a row of the table of kinds.
type Kind struct {
	Name    string   // as documents have it
	Aliases []string // other words for it, in lower case
	List    string   // the member of a JSON file that holds a list of them, as GET answers it
	Bare    bool     // the metadata of one may say all of it, without a spec
	Member  string   // what only objects of this kind have, where two kinds share List
}

// The kinds of object that documents may have. A kind that the server does not serve yet it refuses
// by name.
const (
	Loadbalancer = "Loadbalancer"
	Endpoint     = "Endpoint"
	Drain        = "Drain"
	Firewall     = "Firewall"
	Policy       = "Policy"
	Mirror       = "Mirror"
	IPaddress    = "IPaddress"
	Neighbor     = "Neighbor"
	Route        = "Route"
	FDB          = "FDB"
	Vlan         = "Vlan"
	VlanMember   = "VlanMember"
	Vxlan        = "Vxlan"
	VxlanPeer    = "VxlanPeer"
	Session      = "Session"
	SessionULCL  = "SessionULCL"
	BFD          = "BFD"
)

// Kinds returns the table, in the order in which objects are saved and applied: what others stand
// on comes first.
func Kinds() []Kind {
	return []Kind{
		{Name: Vlan, Bare: true, List: "vlanAttr"},
		{Name: VlanMember, Aliases: []string{"vlan-member", "vlan_member"}},
		{Name: Vxlan, List: "vxlanAttr"},
		{Name: VxlanPeer, Aliases: []string{"vxlan-peer", "vxlan_peer"}},
		{Name: IPaddress, Aliases: []string{"ipv4address", "ipv4", "ip"}, List: "ipAttr"},
		{Name: Neighbor, Aliases: []string{"nei", "neigh"}, List: "neighborAttr"},
		{Name: FDB, List: "fdbAttr"},
		{Name: Route, List: "routeAttr"},
		{Name: Endpoint, Aliases: []string{"ep", "endpoints"}, List: "Attr", Member: "hostName"},
		{Name: Loadbalancer, Aliases: []string{"lb", "lbs", "loadbalancers"}, List: "lbAttr"},
		{Name: Drain, Aliases: []string{"drains"}, List: "drainAttr"},
		{Name: Policy, Aliases: []string{"pol", "pols", "policys", "polices"}, List: "polAttr"},
		{Name: Mirror, Aliases: []string{"mirr", "mirrors"}, List: "mirrAttr"},
		{Name: Firewall, Aliases: []string{"fw", "firewalls"}, List: "fwAttr"},
		{Name: Session, Aliases: []string{"sessions"}, List: "sessionAttr"},
		{Name: SessionULCL, Aliases: []string{"ulcl", "ulcls", "sessionulcls"}, List: "ulclAttr"},
		{Name: BFD, Aliases: []string{"bfd-session"}, List: "Attr", Member: "remoteIp"},
	}
}

// Find returns the kind of a name or an alias, in any case.
func Find(word string) (Kind, bool) {
	for _, k := range Kinds() {
		if strings.EqualFold(word, k.Name) {
			return k, true
		}
		for _, a := range k.Aliases {
			if strings.EqualFold(word, a) {
				return k, true
			}
		}
	}
	return Kind{}, false
}

// names lists all kinds.
func names() string {
	var list []string
	for _, k := range Kinds() {
		list = append(list, k.Name)
	}
	return strings.Join(list, ", ")
}
