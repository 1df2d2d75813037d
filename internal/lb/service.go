// Package lb is the domain of the load balancer: it defines services, endpoints, modes and
// algorithms, the names of their fields (Fields), and which values are allowed. It is independent
// of maps and sockets.
package lb

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Key identifies a service: the properties of its packets. Two services never share a key, nor do
// port ranges of services with one VIP, protocol and mark overlap. As an exception, services with a
// single port may lie within a range, and ranges within AllPorts: the more specific service gets
// the packet.
type Key struct {
	VIP      netip.Addr // IPv4 or IPv6, never v4-mapped, never with a zone
	Port     uint16     // host byte order; 0 only for protocols without ports
	PortMax  uint16     // last of a range of ports, above Port; 0: one port
	Protocol Protocol
	Mark     uint32 // the mark (skb->mark) of its packets; 0: any mark that no other service has
}

// Endpoint is a server behind a service.
type Endpoint struct {
	Addr netip.Addr // IPv4 or IPv6, whatever the VIP is (Service.Translates)
	Port uint16     // host byte order
	// PortMax makes the endpoint listen on as many ports as the service has, Port to PortMax:
	// the service's first port maps to Port, and so on. 0: all ports of the service map to
	// Port.
	PortMax  uint16
	Weight   uint16 // 0: no new connections, existing ones stay
	Backup   uint8  // its level: an endpoint above 0 gets new connections only while lower levels have too few endpoints, see Service.ActiveLevel
	ServerID string // with QUIC: its name in connection IDs, in lower-case hexadecimal digits
}

// Service is the desired state of one service, as its owner wrote it. The order of Endpoints is the
// order of round robin.
type Service struct {
	Key
	ConnectionLimits
	Announcement
	Name        string // free text, may be empty; services may share it
	Mode        Mode
	Algorithm   Algorithm
	Endpoints   []Endpoint
	IdleTimeout time.Duration  // 0: the protocol's default; whole seconds, at most 24 h
	Secondary   []netip.Addr   // secondary VIPs, of the same IP version: the same service, with the same endpoints and counters
	Sources     []netip.Prefix // clients that may connect, of the VIP's IP version, in the form of NormalSources; none: all
	Denied      []netip.Prefix // denied prefixes, in the same form; a source in both lists is denied
	// With Persist: the time for which a client without new connections is remembered, in whole
	// seconds up to 24 h, 0 for DefaultPersistTimeout; and the number of address bits that
	// identify a client, 0 for all.
	PersistTimeout time.Duration
	PersistPrefix  uint8
	SNAT           []netip.Addr  // source addresses that replace the mode's; each has its own ports
	Egress         bool          // connections opened by its endpoints leave with the VIP, or an address of SNAT, as source; see HasEgressSource
	ProxyProtocol  bool          // endpoints get a header with the client's address in front of its data (PROXY protocol, version 2)
	Helper         Helper        // application protocol with related connections
	BGP            bool          // announces its VIPs by BGP
	Refuse         Refusal       // how to answer packets that the service cannot use
	SynProtect     SynProtect    // TCP: when unknown clients are challenged
	Tunnel         Tunnel        // with ModeDSR: how endpoints are reached
	MSS            uint16        // largest TCP segment that the two sides may agree on; 0: any
	Managed        bool          // owned by a controller; an update does not change it
	Owner          string        // the controller, so that each one finds its own; empty: unknown
	OwnerTime      time.Time     // when the owner last changed the service, in whole seconds; zero without an Owner
	Monitor        bool          // probe endpoints, and send no new connections to endpoints that are down; see Monitored
	Probe          Probe         // how endpoints are probed
	Outlier        Outlier       // whether endpoints with failing handshakes are ejected
	AllDown        AllDown       // how to treat new connections while no endpoint is up
	QUIC           []QUICConfig  // with QUIC: configurations of connection IDs; see QUICConfigs
	SlowStart      time.Duration // how long a new endpoint takes to reach its full share; 0: no ramp
	FailoverBelow  uint8         // percentage of the weight of a level of endpoints, below which the next level joins it; 0: only when no endpoint is left
	OnRemove       Closing       // how to treat open connections of endpoints that are removed from the service
	OnFail         Closing       // how to treat open connections of endpoints that are down
	DrainTime      time.Duration // how long ClosingDrain keeps connections open, in whole seconds up to 24 h; 0: DefaultDrainTime
}

// Limits of the desired state. They determine the sizes of the data path's maps.
const (
	MaxServices            = 65536
	MaxEndpointsPerService = 4096
	MaxEndpoints           = 262144 // of all services together
	MaxSourcesPerService   = 1000000
	MaxSources             = 1048576 // of all services together
	MaxSNAT                = 64      // source addresses of a service
	MaxSecondary           = 3       // secondary VIPs of a service: the existing loxilb's limit for SCTP
	MaxWeight              = 65535
	MaxIdleTimeout         = 24 * time.Hour
	MaxPersistTimeout      = 24 * time.Hour
	DefaultPersistTimeout  = 3 * time.Hour
	MaxOwnerLength         = 128 // characters
	MaxNameLength          = 384 // characters: Kubernetes makes it of a namespace (63), a name (253) and an instance
)

// Validate checks every field of a service to be created or replaced. It returns a *FieldError for
// the first invalid one. A valid service can be compiled, whatever else exists; checks against
// other services (owners, totals) are the store's.
func (s Service) Validate() error {
	if err := s.Key.Validate(); err != nil {
		return err
	}
	if err := wordError(FieldMode, s.Mode, modes()); err != nil {
		return err
	}
	if err := wordError(FieldSelect, s.Algorithm, algorithms()); err != nil {
		return err
	}
	if err := s.validateMode(); err != nil {
		return err
	}
	if err := s.validateSecondary(); err != nil {
		return err
	}
	if err := ValidateName(FieldName, s.Name); err != nil {
		return err
	}
	if err := validateOwner(s.Owner); err != nil {
		return err
	}
	if err := validateIdle(s.IdleTimeout); err != nil {
		return err
	}
	if err := s.validatePersist(); err != nil {
		return err
	}
	if err := s.validateRefusal(); err != nil {
		return err
	}
	if err := s.validateSynProtect(); err != nil {
		return err
	}
	if err := s.validateLimits(); err != nil {
		return err
	}
	if err := s.validateTunnel(); err != nil {
		return err
	}
	if err := s.validateSources(); err != nil {
		return err
	}
	if err := s.validateMonitor(); err != nil {
		return err
	}
	if err := s.validateClosing(); err != nil {
		return err
	}
	if err := s.validateBackups(); err != nil {
		return err
	}
	if err := s.validateSlowStart(); err != nil {
		return err
	}
	if err := s.validateQUIC(); err != nil {
		return err
	}
	if err := s.validateN3(); err != nil {
		return err
	}
	if err := s.validateOutlier(); err != nil {
		return err
	}
	if err := s.validateAnnouncement(); err != nil {
		return err
	}
	return s.validateEndpoints()
}

// ValidateName checks the name of a service or another object; "" means none. field names it in
// errors. A name is part of URL paths, so it has no slash and is no dot segment, and of tables, so
// it prints on one line.
func ValidateName(field, name string) error {
	reason := ""
	switch {
	case utf8.RuneCountInString(name) > MaxNameLength:
		reason = "is too long"
	case !isPrintable(name):
		reason = "does not print"
	case strings.ContainsAny(name, `/\`):
		reason = "has a slash"
	case name == "." || name == "..":
		reason = "is a path"
	case name != strings.TrimSpace(name):
		reason = "begins or ends with a space"
	default:
		return nil
	}
	return NewFieldError(field, name, reason,
		"up to "+strconv.Itoa(MaxNameLength)+" printable characters without slashes")
}

func validateOwner(owner string) error {
	reason := ""
	switch {
	case utf8.RuneCountInString(owner) > MaxOwnerLength:
		reason = "is too long"
	case !isPrintable(owner):
		reason = "does not print"
	default:
		return nil
	}
	return NewFieldError(FieldOwner, owner, reason, "up to "+strconv.Itoa(MaxOwnerLength)+" printable characters")
}

func validateIdle(d time.Duration) error {
	const allowed = "0s (the default of the protocol) to 86400s, whole seconds"
	switch {
	case d < 0 || d > MaxIdleTimeout:
		return NewFieldError(FieldIdleTimeout, durationText(d), "is out of range", allowed)
	case d%time.Second != 0:
		return NewFieldError(FieldIdleTimeout, durationText(d), "is not whole seconds", allowed)
	}
	return nil
}

// Role is the role of a node for the services of an instance, assigned by keepalived or
// kube-loxilb, for example. The words are the existing loxilb's.
type Role string

// The roles.
const (
	RoleMaster  Role = "MASTER"
	RoleBackup  Role = "BACKUP"
	RoleFault   Role = "FAULT"
	RoleStop    Role = "STOP"
	RoleUnknown Role = "NOT_DEFINED" // no role was assigned: each node acts as if it were alone
)

// ParseRole parses the word of a role, in any case.
func ParseRole(s string) (Role, error) {
	all := []string{string(RoleMaster), string(RoleBackup), string(RoleFault), string(RoleStop), string(RoleUnknown)}
	for _, word := range all {
		if strings.EqualFold(s, word) {
			return Role(word), nil
		}
	}
	return "", NewFieldError(FieldRole, s, "is not known", list(all))
}

// Owns reports whether the node answers for the VIPs.
func (r Role) Owns() bool { return r == RoleMaster || r == RoleUnknown || r == "" }

// OwnsSource reports whether this node owns a source address of firewall rules: it has the role of
// the instance with that VIP, otherwise of the default one.
func OwnsSource(a netip.Addr, instances map[string]Instance) bool {
	return instances[SourceInstance(a, instances)].Role.Owns()
}

// SourceInstance returns the instance that decides about a source address of firewall rules.
func SourceInstance(a netip.Addr, instances map[string]Instance) string {
	for key, one := range instances {
		if one.VIP == a {
			return key
		}
	}
	return DefaultInstance
}

// DefaultInstance is the instance of services whose names have none.
const DefaultInstance = "llb-inst0"

// InstanceKey returns the key of a named instance. "" and "default", as in examples of the existing
// loxilb, mean DefaultInstance.
func InstanceKey(name string) string {
	if name == "" || name == "default" {
		return DefaultInstance
	}
	return name
}

// Instance returns the instance of a service: the part of its name after the last colon.
func (s *Service) Instance() string {
	if i := strings.LastIndexByte(s.Name, ':'); i >= 0 {
		return InstanceKey(s.Name[i+1:])
	}
	return DefaultInstance
}

// OwnAddresses lists the addresses that the owner of the service answers for: its VIPs, and its own
// source addresses.
func (s *Service) OwnAddresses() []netip.Addr {
	var out []netip.Addr
	if s.VIP.IsValid() && !s.VIP.IsUnspecified() {
		out = append(out, s.VIP)
	}
	return append(append(out, s.Secondary...), s.SNAT...)
}

// Instance is the role of this node for the services of an instance.
type Instance struct {
	Name   string     `json:"name"` // as given
	Role   Role       `json:"role"`
	VIP    netip.Addr `json:"vip,omitzero"` // the cluster's: the source that endpoints see in mode fullnat in place of services' VIPs; invalid: none
	Origin string     `json:"place"`        // boot of the machine and network namespace where the role was assigned
	// Lease is how long the node stays MASTER while its daemon does not run; 0: until it
	// reboots.
	Lease time.Duration `json:"lease,omitzero"`
}

// MinLease and MaxLease are the limits of Instance.Lease. A shorter lease would end during an
// upgrade of the daemon.
const (
	MinLease = 5 * time.Second
	MaxLease = time.Hour

	leaseRange = "5s to 3600s, whole seconds; 0: none"
)

// Key returns the key of the instance.
func (i *Instance) Key() string { return InstanceKey(i.Name) }

// Validate checks all fields.
func (i *Instance) Validate() error {
	if err := ValidateName(FieldInstance, i.Name); err != nil {
		return err
	}
	if strings.Contains(i.Name, ":") {
		return NewFieldError(FieldInstance, i.Name, "has a colon", "the part of services' names after the last colon")
	}
	if _, err := ParseRole(string(i.Role)); err != nil {
		return err
	}
	if err := i.validateLease(); err != nil {
		return err
	}
	if i.VIP.IsValid() {
		return CheckRoutable(FieldInstanceVIP, i.VIP)
	}
	return nil
}

// LeaseOf returns a lease of this many seconds; 0: none.
func LeaseOf(seconds int) (time.Duration, error) {
	if seconds < 0 || seconds > int(MaxLease/time.Second) || seconds > 0 && seconds < int(MinLease/time.Second) {
		return 0, NewFieldError(FieldInstanceLease, strconv.Itoa(seconds)+"s", "is out of range", leaseRange)
	}
	return time.Duration(seconds) * time.Second, nil
}

func (i *Instance) validateLease() error {
	switch {
	case i.Lease == 0:
	case i.Lease < MinLease || i.Lease > MaxLease || i.Lease%time.Second != 0:
		return NewFieldError(FieldInstanceLease, durationText(i.Lease), "is out of range", leaseRange)
	case i.Role == RoleUnknown:
		return NewFieldError(FieldInstanceLease, durationText(i.Lease), "has no role to end", "0 with state "+string(RoleUnknown))
	}
	return nil
}

// AtOrigin returns the instance for a process with this origin: a boot of the machine and a network
// namespace. A master of another origin becomes a backup until the role is assigned again: another
// node may have become master meanwhile, and two masters are worse than none.
func (i Instance) AtOrigin(origin string) Instance {
	if i.Role == RoleMaster && i.Origin != origin {
		i.Role = RoleBackup
	}
	return i
}

// Source returns the address that endpoints of a service of the instance see in mode fullnat
// instead of its VIP; invalid: the VIP.
func (i *Instance) Source(s *Service) netip.Addr {
	if !i.VIP.IsValid() || s.Mode != ModeFullNAT || len(s.SNAT) > 0 || i.VIP.Is4() != s.VIP.Is4() {
		return netip.Addr{}
	}
	if slices.ContainsFunc(s.Endpoints, s.Translates) {
		return netip.Addr{}
	}
	return i.VIP
}
