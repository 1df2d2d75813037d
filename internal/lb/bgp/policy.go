package bgp

// A DefinedSet is a named list that conditions of policies refer to, as in OpenConfig's routing
// policy.
type DefinedSet struct {
	Type     SetType      `json:"type"`
	Name     string       `json:"name"`               // unique among sets of its type
	Members  []string     `json:"members,omitempty"`  // of all types but prefix: addresses or patterns
	Prefixes []PrefixRule `json:"prefixes,omitempty"` // of type prefix
}

// SetType is the type of a DefinedSet, in the contract's words.
type SetType string

// The types of sets.
const (
	PrefixSet         SetType = "prefix"
	NeighborSet       SetType = "neighbor"
	CommunitySet      SetType = "community"
	ExtCommunitySet   SetType = "extcommunity"
	ASPathSet         SetType = "aspath"
	LargeCommunitySet SetType = "largecommunity"
)

// PrefixRule matches prefixes within Prefix whose length is in a range such as "24..32".
type PrefixRule struct {
	Prefix  string `json:"ipPrefix"`
	Lengths string `json:"masklengthRange,omitempty"` // "": exactly the length of Prefix
}

// A Policy is a list of statements; the first whose conditions match decides about a route.
type Policy struct {
	Name       string      `json:"name"`
	Statements []Statement `json:"statements,omitempty"`
}

// A Statement applies its actions to routes that meet all of its conditions.
type Statement struct {
	Name       string     `json:"name"`
	Conditions Conditions `json:"conditions,omitzero"`
	Actions    Actions    `json:"actions,omitzero"`
}

// SetMatch is how routes are compared with a DefinedSet: "any", "all" or "invert".
type SetMatch struct {
	Set   string `json:"set,omitempty"`
	Match string `json:"match,omitempty"`
}

// Conditions that routes must meet. Zero: all routes do.
type Conditions struct {
	Prefix         SetMatch `json:"prefix,omitzero"`
	Neighbor       SetMatch `json:"neighbor,omitzero"`
	Families       []string `json:"families,omitempty"` // "ipv4-unicast", "ipv6-unicast"
	ASPathLength   Length   `json:"asPathLength,omitzero"`
	ASPath         SetMatch `json:"asPath,omitzero"`
	Community      SetMatch `json:"community,omitzero"`
	ExtCommunity   SetMatch `json:"extCommunity,omitzero"`
	LargeCommunity SetMatch `json:"largeCommunity,omitzero"`
	NextHops       []string `json:"nextHops,omitempty"`
	RPKI           string   `json:"rpki,omitempty"`
	RouteType      string   `json:"routeType,omitempty"` // "internal", "external" or "local"
}

// Length compares the length of an AS path: operator "eq", "ge" or "le".
type Length struct {
	Operator string `json:"operator,omitempty"`
	Value    uint32 `json:"value,omitempty"`
}

// Actions change the routes that match, and accept or reject them.
type Actions struct {
	Disposition    string       `json:"disposition,omitempty"` // "accept-route" or "reject-route"; "": the next statement decides
	MED            string       `json:"med,omitempty"`         // "100", "+50" or "-50"
	NextHop        string       `json:"nextHop,omitempty"`     // an address, or "self"
	LocalPref      uint32       `json:"localPref,omitempty"`
	Community      SetCommunity `json:"community,omitzero"`
	ExtCommunity   SetCommunity `json:"extCommunity,omitzero"`
	LargeCommunity SetCommunity `json:"largeCommunity,omitzero"`
	Prepend        Prepend      `json:"prepend,omitzero"`
}

// SetCommunity adds, removes or replaces communities: options "add", "remove" or "replace".
type SetCommunity struct {
	Option string   `json:"option,omitempty"`
	Values []string `json:"values,omitempty"`
}

// Prepend repeats an AS in front of the path: a number, or "last-as".
type Prepend struct {
	AS     string `json:"as,omitempty"`
	Repeat uint8  `json:"repeat,omitempty"`
}

// An Application applies policies to the routes from or to a neighbor, in order.
type Application struct {
	Neighbor string   `json:"neighbor"`         // its address; "global": all neighbors
	Import   bool     `json:"import,omitempty"` // otherwise export
	Policies []string `json:"policies,omitempty"`
	Reject   bool     `json:"reject,omitempty"` // routes that no policy decides about
}
