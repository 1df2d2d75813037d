// Package annotation reads the annotations of a Service.
package annotation

import (
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Family is the IP versions of VIPs and endpoints.
type Family string

// The choices.
const (
	FamilyOfService Family = ""        // the Service's families
	IPv4            Family = "ipv4"    // both IPv4
	IPv6            Family = "ipv6"    // both IPv6
	IPv6To4         Family = "ipv6to4" // IPv6 VIP, IPv4 endpoints
)

// InstanceOfVIP is the Instance of a Service whose VIPs are spread over all instances.
const InstanceOfVIP = -1

// Settings are the annotations of a Service, with the defaults of the command line.
type Settings struct {
	// Addresses
	Family           Family
	Addresses        []netip.Addr // at most one of each family
	Pool             string
	SecondaryPools   []string
	SecondaryAddress []netip.Addr
	SharingKey       string

	// The nodes that serve it
	Zone     string // of the controller; empty: each one
	Instance int    // whose node has its VIPs, or InstanceOfVIP

	// Endpoints
	PodNetwork bool // pods instead of node ports
	External   bool // the endpoints of a Service without selector
	PreferNode bool // prefer endpoints on a balancer's node
	Nodes      labels.Selector
	Networks   []string // of Multus, as NAMESPACE/NAME

	// Of the balancer's service
	Mode          string
	Select        string
	IdleTimeout   time.Duration // 0: the balancer's default
	Monitor       bool
	ProbeType     string
	ProbePort     int
	ProbeRequest  string
	ProbeResponse string
	ProbePeriod   time.Duration
	ProbeRetries  int
	ProxyProtocol bool
	Egress        bool
	BGP           bool
	SourceRanges  []netip.Prefix // in addition to the Service's spec
}
