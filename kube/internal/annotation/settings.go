// Package annotation reads what the annotations of a Service ask for.
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
	FamilyOfService Family = ""        // those of the Service
	IPv4            Family = "ipv4"    // both IPv4
	IPv6            Family = "ipv6"    // both IPv6
	IPv6To4         Family = "ipv6to4" // IPv6 VIP, IPv4 endpoints
)

// InstanceOfVIP is the Instance of a Service whose VIPs are spread over all instances.
const InstanceOfVIP = -1

// Settings is what a Service asks for, with the defaults of the command line filled in.
type Settings struct {
	// Addresses
	Family           Family
	Addresses        []netip.Addr // these, at most one of a family
	Pool             string
	SecondaryPools   []string
	SecondaryAddress []netip.Addr
	SharingKey       string

	// Who serves it
	Zone     string // of the controller; empty: each one
	Instance int    // whose node has its VIPs, or InstanceOfVIP

	// Endpoints
	PodNetwork bool // pods instead of node ports
	External   bool // the endpoints of a Service without selector
	PreferNode bool // those of a balancer's node first
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
	SourceRanges  []netip.Prefix // besides those of the Service's spec
}
