// Package kinds registers the kinds of objects: one file for each, with the names of its objects,
// and their form in the store, requests, answers, files and commands. The store, the API, files and
// loxicmd iterate over the registrations, so a new kind needs no lines there
// (docs/adr/0046-store.md).
package kinds

import (
	"net/netip"
	"net/url"
)

// All returns all kinds in the order of saving and applying: dependencies come first.
func All() []Any {
	return []Any{
		VLAN(), VLANMember(), VXLAN(), VXLANPeer(), Address(), Neighbor(), FDB(), Route(),
		Endpoint(), Service(), Drain(), Policer(), Mirror(), Rule(), Instance(), Maintenance(),
		BGPSpeaker(), BGPSet(), BGPPolicy(), BGPApplication(), BGPNeighbor(),
		BFD(), ClusterNode(), Session(), SessionFlow(),
	}
}

// The names of kinds in documents.
const (
	ServiceDocument    = "Loadbalancer"
	EndpointDocument   = "Endpoint"
	DrainDocument      = "Drain"
	RuleDocument       = "Firewall"
	PolicerDocument    = "Policy"
	MirrorDocument     = "Mirror"
	AddressDocument    = "IPaddress"
	NeighborDocument   = "Neighbor"
	RouteDocument      = "Route"
	FDBDocument        = "FDB"
	VLANDocument       = "Vlan"
	VLANMemberDocument = "VlanMember"
	VXLANDocument      = "Vxlan"
	VXLANPeerDocument  = "VxlanPeer"
	BFDDocument        = "BFD"

	SessionDocument     = "Session"
	SessionFlowDocument = "SessionULCL"
)

// A Kind registers a kind of objects. T is the daemon's form of an object, B the form in requests
// and answers of the API.
type Kind[T, B any] struct {
	Words
	Stored Stored[T]
	API    API[T, B] // without a Path, requests about the kind have their own code
	CLI    CLI[B]    // without a Singular, so have the commands
}

// Any is a Kind of any types: objects are T, bodies are *B.
type Any interface {
	// About returns the names of the kind.
	About() Words
	// Paths returns the path of requests about all objects, and the suffix for a single object.
	Paths() (all, one string)
	// Only returns the key of the only object of a kind that has at most one; "": it may have
	// many.
	OnlyKey() string
	// NewBody returns a body to decode JSON into.
	NewBody() any
	// Read decodes an object from a body. It returns a *lb.FieldError with the API's names.
	Read(body any) (object any, err error)
	// Show returns the body that creates an object.
	Show(object any) (body any)
	// Add merges the object of a posted body into the stored one.
	Merge(stored, posted, body any) (object any)
	// DeletedKey returns the key of the object that a DELETE names by its path and parameters, or a
	// *lb.FieldError with the path's names.
	DeletedKey(name string, parameters url.Values) (string, error)
	// Peer returns the address of another node that an object names, and its field; invalid:
	// none.
	Peer(object any) (field string, peer netip.Addr)
	// Spare returns why a DELETE with these parameters keeps an object; "": it does not.
	KeepReason(object any, parameters url.Values) (why string)
	// Rename converts the field of a *lb.FieldError to the API's name.
	Rename(err error) error
	// Commands returns the kind's commands; nil: they have their own code.
	Commands() *Commands
}

// Words are the names of a kind for users.
type Words struct {
	Name         string   // in sentences, statuses, events and the journal: "policer"
	Document     string   // in files for apply and plan: "Policy"; "": not in files
	Command      string   // in commands of loxicmd: "policy"
	Aliases      []string // other words in commands and files
	List         string   // the member of a JSON file with a list of objects, as GET returns it: "polAttr"
	Member       string   // property that only this kind has, if two kinds share List
	SpecOptional bool     // a document may have metadata only
	Exported     bool     // exported configurations contain the objects
	Verified     bool     // verify reports unapplied objects
}

// Stored is the form of a kind's objects in the store.
type Stored[T any] struct {
	Key      func(T) string // as users write it; two objects of a kind never share one
	Validate func(T) error  // refuses an object, whatever else exists
	Equal    func(a, b T) bool
	Clone    func(T) T                                      // copies parts that the caller could change; nil: it has none
	Format   int                                            // highest format that Decode knows
	Encode   func(T) (format int, object []byte, err error) // in the lowest format that can express it
	Decode   func(format int, object []byte) (T, error)

	// KeepHidden restores properties that Show hides from the stored object, or from the zero value
	// without one; nil: Show hides none.
	KeepHidden func(wanted, stored T) (T, error)

	Max    int    // maximum number of objects; 0: any
	Plural string // their name in the error about too many objects
	Urgent bool   // changes take effect even if the disk cannot store them: see store.Kind
	Shared bool   // with --store, the same on all nodes; otherwise local to the node

	// UniqueValues returns values besides the key that no two objects of the kind may share; nil:
	// only keys are unique. RefuseDuplicate returns the error of an object that shares a value with
	// the object of key other.
	UniqueValues    func(T) []string
	RefuseDuplicate func(object T, other string) error
}
