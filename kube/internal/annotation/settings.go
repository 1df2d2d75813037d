// Package annotation reads the annotations of a Service.
package annotation

import (
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Family selects the IP versions of VIPs and endpoints.
type Family string

// Values of Family.
const (
	FamilyOfService Family = ""        // the Service's families
	IPv4            Family = "ipv4"    // both IPv4
	IPv6            Family = "ipv6"    // both IPv6
	IPv6To4         Family = "ipv6to4" // IPv6 VIP, IPv4 endpoints
)

// InstanceOfVIP is a value of Settings.Instance: each VIP determines its own instance.
const InstanceOfVIP = -1

// Settings are the annotations of a Service, with the command line's defaults for missing ones.
type Settings struct {
	// Addresses
	Family             Family
	Addresses          []netip.Addr // at most one of each family
	Pool               string
	SecondaryPools     []string
	SecondaryAddresses []netip.Addr
	SharingKey         string

	Instance int // its MASTER has the VIPs; or InstanceOfVIP

	// Endpoints
	PodNetwork bool // pods instead of node ports
	External   bool // EndpointSlices that users maintain, of a Service without a selector
	PreferNode bool // prefer endpoints on a balancer's node
	Nodes      labels.Selector
	Networks   []string // Multus networks, as NAMESPACE/NAME

	// Arguments of the balancer's services
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
