// Package event distributes events to subscribers: the reconciler, the announcer and the REST
// stream.
package event

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Kind is the kind of an event's subject, as users write it.
type Kind string

// The kinds.
const (
	KindLink      Kind = "link"
	KindAddress   Kind = "address"
	KindRoute     Kind = "route"
	KindNeighbour Kind = "neighbour"
	KindHealth    Kind = "health"
	KindObject    Kind = "object"
	KindPressure  Kind = "pressure"
	KindRevision  Kind = "revision"
	KindVIP       Kind = "vip"
	KindNode      Kind = "node"
	KindPeer      Kind = "peer"
	KindStore     Kind = "store"
)

// Kinds lists all kinds, for messages and completion.
func Kinds() []Kind {
	return []Kind{KindLink, KindAddress, KindRoute, KindNeighbour, KindHealth, KindObject, KindPressure, KindRevision, KindVIP, KindNode, KindPeer, KindStore}
}

// Action is the kind of change.
type Action string

// The actions.
const (
	Added   Action = "added"
	Changed Action = "changed"
	Removed Action = "removed"
	Applied Action = "applied" // the data path has the desired version of the object
	Failed  Action = "failed"  // the object could not be applied, or does not work; it is retried
	Solved  Action = "solved"  // the problem that Failed reported is over
	Began   Action = "began"
	Ended   Action = "ended"

	Announced Action = "announced"
	Withdrawn Action = "withdrawn"
)

// Body is the content of an event: one of the types below.
type Body interface {
	Kind() Kind
	Object() string // the subject, for users
	Act() Action
	String() string // one sentence
}

// Event is a single event.
type Event struct {
	Seq  uint64 // counts from 1 since the daemon started, without gaps
	Time time.Time
	Body
}

// Link is an interface that appeared, disappeared, was renamed, or changed a relevant property.
type Link struct {
	Index  int
	Name   string
	State  string // "up", "up without a carrier", "down"
	Action Action
}

// Kind is KindLink.
func (Link) Kind() Kind { return KindLink }

// Object is the interface's name.
func (l Link) Object() string { return l.Name }

// Act is Added, Changed or Removed.
func (l Link) Act() Action { return l.Action }

func (l Link) String() string {
	if l.Action == Removed || l.State == "" {
		return fmt.Sprintf("interface %s (%d) %s", l.Name, l.Index, l.Action)
	}
	return fmt.Sprintf("interface %s (%d) %s: it is %s", l.Name, l.Index, l.Action, l.State)
}

// Address is an address of this machine that was added or removed.
type Address struct {
	Addr   netip.Addr
	Action Action
}

// Kind is KindAddress.
func (Address) Kind() Kind { return KindAddress }

// Object returns the address.
func (a Address) Object() string { return a.Addr.String() }

// Act is Added or Removed.
func (a Address) Act() Action { return a.Action }

func (a Address) String() string { return fmt.Sprintf("address %s %s", a.Addr, a.Action) }

// Routes reports that routes, rules or next hops changed. Bursts of changes become a few events.
type Routes struct {
	Count      int  // kernel messages that this event combines; 0: unknown, all routes were reread
	Defaults   bool // the default routes of the main table changed
	Neighbours bool // only MAC addresses of neighbours changed, not the routes
}

// Kind is KindRoute.
func (Routes) Kind() Kind { return KindRoute }

// Object is constant: subscribers query the kernel for details.
func (Routes) Object() string { return "routes" }

// Act is Changed.
func (Routes) Act() Action { return Changed }

func (r Routes) String() string {
	if r.Neighbours {
		return "neighbours have other MAC addresses"
	}
	if r.Count == 0 {
		return "routes were read again"
	}
	if r.Count == 1 {
		return "routes changed"
	}
	return fmt.Sprintf("routes changed (%d messages of the kernel)", r.Count)
}

// Neighbour is a neighbour that has another MAC address than before, or no longer answers.
type Neighbour struct {
	Addr   netip.Addr
	Link   string
	Action Action
}

// Kind is KindNeighbour.
func (Neighbour) Kind() Kind { return KindNeighbour }

// Object returns the neighbour's address.
func (n Neighbour) Object() string { return n.Addr.String() }

// Act is Added, Changed or Removed.
func (n Neighbour) Act() Action { return n.Action }

func (n Neighbour) String() string {
	return fmt.Sprintf("neighbour %s at %s %s", n.Addr, n.Link, n.Action)
}

// Health is an endpoint whose state changed.
type Health struct {
	Endpoint netip.AddrPort // the probed address; port 0: probed by ping
	State    string
	Evidence string   // such as "tcp 31.31.31.1:5001: connection refused, 3 of 3"
	Name     string   // the probe's name in loxicmd get endpoint
	Services []string // the first services that consider the endpoint's health
	Users    int      // the number of all such services
}

// Kind is KindHealth.
func (Health) Kind() Kind { return KindHealth }

// Object returns the endpoint.
func (h Health) Object() string {
	if h.Endpoint.Port() == 0 {
		return h.Endpoint.Addr().String()
	}
	return h.Endpoint.String()
}

// Act is Changed.
func (Health) Act() Action { return Changed }

func (h Health) String() string {
	return fmt.Sprintf("endpoint %s is %s: %s (%s%s)", h.Object(), h.State, h.Evidence, h.Name, h.servicesText())
}

// servicesText names the services that consider the endpoint's health.
func (h Health) servicesText() string {
	if h.Users == 0 {
		return ""
	}
	of := ", of " + strings.Join(h.Services, ", ")
	if more := h.Users - len(h.Services); more > 0 {
		of += fmt.Sprintf(" and %d more", more)
	}
	return of
}

// Object is an object that was applied, or could not be.
type Object struct {
	ObjectKind string // "service"
	Key        string
	Version    uint64 // the desired version
	Action     Action // Applied, Failed, Solved, or Removed
	Error      string // of Failed and Solved
}

// Kind is KindObject.
func (Object) Kind() Kind { return KindObject }

// Object is the object's kind and key.
func (o Object) Object() string { return o.ObjectKind + " " + o.Key }

// Act is Applied, Failed, Solved or Removed.
func (o Object) Act() Action { return o.Action }

func (o Object) String() string {
	if o.Error != "" {
		return fmt.Sprintf("%s %s %s: %s", o.ObjectKind, o.Key, o.Action, o.Error)
	}
	return fmt.Sprintf("%s %s %s", o.ObjectKind, o.Key, o.Action)
}

// Pressure reports that the connection table or a pool of source ports runs short, or no longer
// does.
type Pressure struct {
	Action Action // Began or Ended
	Reason string // how full the table is
}

// Kind is KindPressure.
func (Pressure) Kind() Kind { return KindPressure }

// Object is constant: there is one table.
func (Pressure) Object() string { return "connections" }

// Act is Began or Ended.
func (p Pressure) Act() Action { return p.Action }

func (p Pressure) String() string {
	return fmt.Sprintf("pressure on the connection table %s: %s", p.Action, p.Reason)
}

// Revision is a change that waits for confirmation, and its outcome.
type Revision struct {
	Number uint64
	Action Action    // Began, Ended (confirmed) or Removed (rolled back)
	Until  time.Time // of Began
	Doing  string    // description of the change
	Who    string    // author of the change
}

// Kind is KindRevision.
func (Revision) Kind() Kind { return KindRevision }

// Object returns its number.
func (r Revision) Object() string { return fmt.Sprint("revision ", r.Number) }

// Act is Began, Ended or Removed.
func (r Revision) Act() Action { return r.Action }

func (r Revision) String() string {
	switch r.Action {
	case Began:
		return fmt.Sprintf("revision %d waits for confirmation until %s: %s, by %s", r.Number, r.Until.UTC().Format(time.RFC3339), r.Doing, r.Who)
	case Removed:
		return fmt.Sprintf("revision %d rolled back: not confirmed in time", r.Number)
	}
	return fmt.Sprintf("revision %d confirmed", r.Number)
}

// VIP is a VIP, or an aggregate of VIPs, that BGP neighbors learn or lose.
type VIP struct {
	Prefix netip.Prefix
	Action Action // Announced or Withdrawn
	Why    string
}

// Kind is KindVIP.
func (VIP) Kind() Kind { return KindVIP }

// Object returns the prefix.
func (v VIP) Object() string { return v.Prefix.String() }

// Act is Announced or Withdrawn.
func (v VIP) Act() Action { return v.Action }

func (v VIP) String() string { return fmt.Sprintf("VIP %s %s: %s", v.Prefix, v.Action, v.Why) }

// Node reports that this node drains, is drained, or is in service again. Began also reports that
// it announces no VIPs because the serving nodes of the cluster refuse it, and Ended that they
// accept it again.
type Node struct {
	Action Action // Began, Changed or Ended
	What   string // one sentence
}

// Kind is KindNode.
func (Node) Kind() Kind { return KindNode }

// Object is constant.
func (Node) Object() string { return "node" }

// Act is Began, Changed or Ended.
func (n Node) Act() Action { return n.Action }

func (n Node) String() string { return n.What }

// Peer is another node of the cluster that began or ended to exchange connections with this node.
type Peer struct {
	Node    string
	Address string
	Action  Action
	Reason  string // of Ended
}

// Kind is KindPeer.
func (Peer) Kind() Kind { return KindPeer }

// Object is the node's name.
func (p Peer) Object() string { return p.Node }

// Act is Began or Ended.
func (p Peer) Act() Action { return p.Action }

func (p Peer) String() string {
	if p.Action == Began {
		return fmt.Sprintf("node %s at %s gets the connections of this node", p.Node, p.Address)
	}
	return fmt.Sprintf("node %s at %s no longer gets the connections of this node: %s", p.Node, p.Address, p.Reason)
}

// Store reports that the shared store became unavailable or available.
type Store struct {
	Servers string
	Action  Action
	Reason  string // of Failed
}

// Kind is KindStore.
func (Store) Kind() Kind { return KindStore }

// Object names the servers.
func (s Store) Object() string { return s.Servers }

// Act is Failed or Solved.
func (s Store) Act() Action { return s.Action }

func (s Store) String() string {
	if s.Action == Failed {
		return fmt.Sprintf("%s is unavailable; shared objects cannot change: %s", s.Servers, s.Reason)
	}
	return s.Servers + " is available again"
}
