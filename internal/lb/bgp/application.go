package bgp

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"loxilb/internal/lb"
)

// An Application applies policies to the routes from or to a neighbor, in order.
type Application struct {
	Neighbor string   `json:"neighbor"`         // its address; "global": all neighbors
	Import   bool     `json:"import,omitempty"` // otherwise export
	Policies []string `json:"policies,omitempty"`
	Reject   bool     `json:"reject,omitempty"` // routes that no policy decides about
}

// AllNeighbors stands for all neighbors in an Application.
const AllNeighbors = "global"

// Names of fields in errors, as in the API.
const (
	FieldPolicyType  = "policyType"
	FieldPolicies    = "policies"
	FieldRouteAction = "routeAction"
)

const (
	importWord = "import"
	exportWord = "export"
	acceptWord = "accept"
	rejectWord = "reject"

	maxPolicies = 1024
)

// ParseDirection parses import or export, and reports whether it is import.
func ParseDirection(text string) (imports bool, err error) {
	switch strings.ToLower(text) {
	case importWord:
		return true, nil
	case exportWord:
		return false, nil
	}
	return false, lb.NewFieldError(FieldPolicyType, text, "is not known"+lb.DidYouMean(text, []string{importWord, exportWord}), "import (routes from neighbors) or export (routes to them)")
}

// ParseRouteAction parses accept or reject, and reports whether it is reject; "" means accept.
func ParseRouteAction(text string) (reject bool, err error) {
	switch strings.ToLower(text) {
	case "", acceptWord:
		return false, nil
	case rejectWord:
		return true, nil
	}
	return false, lb.NewFieldError(FieldRouteAction, text, "is not known"+lb.DidYouMean(text, []string{acceptWord, rejectWord}), "accept or reject")
}

// Direction returns import or export.
func (a Application) Direction() string {
	if a.Import {
		return importWord
	}
	return exportWord
}

// RouteAction returns accept or reject.
func (a Application) RouteAction() string {
	if a.Reject {
		return rejectWord
	}
	return acceptWord
}

// Key returns the neighbor and the direction.
func (a Application) Key() string { return a.Neighbor + "/" + a.Direction() }

// Validate checks all fields. The policies need not exist yet.
func (a Application) Validate() error {
	if a.Neighbor != AllNeighbors {
		addr, err := netip.ParseAddr(a.Neighbor)
		if err != nil || addr.String() != a.Neighbor {
			return lb.NewFieldError(FieldNeighbor, a.Neighbor, "is not the address of a neighbor", "its address, or global for all neighbors")
		}
	}
	switch {
	case len(a.Policies) == 0 && !a.Reject:
		return lb.NewFieldError(FieldPolicies, "", "is missing or empty", "names of policies, or routeAction reject")
	case len(a.Policies) > maxPolicies:
		return lb.NewFieldError(FieldPolicies, strconv.Itoa(len(a.Policies)), "is too many", "up to "+strconv.Itoa(maxPolicies))
	}
	for i, name := range a.Policies {
		if err := validateName(FieldPolicies, name); err != nil {
			return err
		}
		if slices.Contains(a.Policies[:i], name) {
			return lb.NewFieldError(FieldPolicies, name, "is listed twice", "each policy once")
		}
	}
	return nil
}

// With returns the application with the policies of other appended, and the route action of other.
func (a Application) With(other Application) Application {
	policies := slices.Clone(a.Policies)
	for _, name := range other.Policies {
		if !slices.Contains(policies, name) {
			policies = append(policies, name)
		}
	}
	a.Policies, a.Reject = policies, other.Reject
	return a
}

// Without returns the application without these policies.
func (a Application) Without(policies []string) Application {
	a.Policies = slices.DeleteFunc(slices.Clone(a.Policies), func(name string) bool { return slices.Contains(policies, name) })
	return a
}
