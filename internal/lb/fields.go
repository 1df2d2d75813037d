package lb

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Fields returns the fields of a service except its key, in the order of its text.
// docs/architecture.md describes how to add one.
func Fields() []Field[Service] { return slices.Clone(fields()) }

// fields returns the list of Fields, shared and read-only: making it takes longer than comparing
// two services.
var fields = sync.OnceValue(func() []Field[Service] {
	return slices.Concat(endpointChoiceFields(), packetFields(), limitFields(), monitorFields(), closingFields(), backupFields(),
		slowStartFields(), quicFields(), outlierFields(), bgpFields(), helperFields())
})

// endpointChoiceFields returns the fields that choose the endpoint of a connection.
func endpointChoiceFields() []Field[Service] {
	return []Field[Service]{
		{
			Name: FieldMode, Text: "mode", Record: "mode", Position: 2, Property: "serviceArguments.mode", Flag: "mode",
			Help: "how to translate packets", Always: true, Numbered: true,
			form: wordOrNumber(func(s *Service) *Mode { return &s.Mode }, modes),
		},
		{
			Name: FieldSelect, Text: "select", Record: "select", Position: 3, Property: "serviceArguments.sel", Flag: "select",
			Help: "how to choose the endpoint of a new connection", Always: true, Numbered: true,
			form: wordOrNumber(func(s *Service) *Algorithm { return &s.Algorithm }, algorithms),
		},
		{
			Name: FieldEndpoints, Also: FieldEndpoint, Text: "endpoints", Record: "endpoints", Position: 4, Property: "endpoints",
			Always: true, Required: true,
			form: listOf(func(s *Service) *[]Endpoint { return &s.Endpoints }, parseEndpoints),
		},
		{
			Name: FieldSecondary, Text: "secips", Record: "secondary", Position: 11, Property: "secondaryIPs", Flag: "secips",
			Help: "up to 3 additional VIPs of the service",
			form: listOf(func(s *Service) *[]netip.Addr { return &s.Secondary }, parseAddrs),
		},
		{
			Name: FieldIdleTimeout, Text: "idle", Record: "idle", Position: 8,
			Property: "serviceArguments.inactiveTimeOut", Flag: "inatimeout",
			Help:    "remove a connection after this many seconds without a packet; 0 is the protocol's default",
			Allowed: "0 (the default of the protocol) to 86400 seconds",
			form:    seconds(func(s *Service) *time.Duration { return &s.IdleTimeout }, MaxIdleTimeout),
		},
		{
			Name: FieldSources, Also: FieldSource, Text: "sources", Record: "sources", Position: 9,
			Property: "allowedSources", Flag: "sources",
			Help: "accept connections only from these prefixes (default: all)",
			form: listOf(func(s *Service) *[]netip.Prefix { return &s.Sources }, parseSources),
		},
		{
			Name: FieldDenied, Also: FieldDeniedSource, Text: "deny", Record: "deny", Position: 22, Since: 3,
			Property: "serviceArguments.deny", Flag: "deny",
			Help: "refuse connections from these prefixes, even if --sources contains them",
			form: listOf(func(s *Service) *[]netip.Prefix { return &s.Denied }, parseSources),
		},
		{
			Name: FieldPersistTimeout, Text: "persist-timeout", Record: "persistTimeout", Position: 13,
			Property: "serviceArguments.persistTimeout", Flag: "persist-timeout",
			Help:    "with --select=persist: forget a client after this many seconds without a new connection; 0 is 10800",
			Allowed: "0 (10800) to 86400 seconds",
			form:    seconds(func(s *Service) *time.Duration { return &s.PersistTimeout }, MaxPersistTimeout),
		},
		{
			Name: FieldPersistPrefix, Text: "persist-prefix", Record: "persistPrefix", Position: 14,
			Property: "serviceArguments.persistPrefix", Flag: "persist-prefix",
			Help:    "with --select=persist: leading address bits that identify a client, such as 64 for IPv6; 0 is the whole address",
			Allowed: "0 (the whole address) to 32 for IPv4, 128 for IPv6",
			form:    number(func(s *Service) *uint8 { return &s.PersistPrefix }, 128),
		},
	}
}

// ownerFormat is the first record format with an Owner. Its JSON member is "controller", because
// "owner" is ignored: see UnmarshalRecord. announcementFormat+1 belongs to another field.
const ownerFormat = announcementFormat + 2

// proxyFormat is the first record format with a ProxyProtocol.
const proxyFormat = quicFormat + 1

// packetFields returns the fields about handling packets, and about the service's owner.
func packetFields() []Field[Service] {
	return []Field[Service]{
		{
			Name: FieldSNAT, Text: "snat", Record: "snat", Position: 10, Property: "serviceArguments.snatIPs", Flag: "snat",
			Help: "source addresses for clients in modes onearm, fullnat, hostonearm and auto, and for endpoints with --egress; " +
				"each allows 64,000 connections per endpoint",
			form: listOf(func(s *Service) *[]netip.Addr { return &s.SNAT }, parseAddrs),
		},
		{
			Name: FieldRefuse, Text: "refuse", Record: "refuse", Position: 5, Property: "serviceArguments.refuse", Flag: "refuse",
			Help: "how to answer new connections when no endpoint is available, and TCP segments without a connection",
			form: word(func(s *Service) *Refusal { return &s.Refuse }, refusals),
		},
		{
			Name: FieldSynProtect, Text: "syn-protect", Record: "synProtect", Position: 16, Since: 3,
			Property: "serviceArguments.synProtect", Flag: "syn-protect",
			Help: "when to challenge unknown TCP clients before they can connect",
			form: word(func(s *Service) *SynProtect { return &s.SynProtect }, synProtects),
		},
		{
			Name: FieldTunnel, Text: "tunnel", Record: "tunnel", Position: 6, Property: "serviceArguments.tunnel", Flag: "tunnel",
			Help: "with --mode=dsr: how packets reach the endpoints",
			form: word(func(s *Service) *Tunnel { return &s.Tunnel }, tunnels),
		},
		{
			Name: FieldMSS, Text: "mss", Record: "mss", Position: 7, Property: "serviceArguments.mss", Flag: "mss",
			Help:    "limit the TCP segment size, in bytes, that client and endpoint negotiate; 0 does not limit it",
			Allowed: mssAllowed,
			form:    number(func(s *Service) *uint16 { return &s.MSS }, 65535),
		},
		{
			Name: FieldEgress, Text: "egress", Record: "egress", Position: 12, Property: "serviceArguments.egress", Flag: "egress",
			Help: "translate connections that endpoints open through the default route to the VIP, or to one of --snat",
			form: boolean(func(s *Service) *bool { return &s.Egress }),
		},
		{
			Name: FieldProxyProtocol, Text: "proxy-protocol", Record: "proxyProtocol", Position: 54, Since: proxyFormat,
			Property: "serviceArguments.proxyprotocolv2", Flag: "ppv2en",
			Help: "send endpoints the client's address in front of its data (PROXY protocol, version 2)",
			form: boolean(func(s *Service) *bool { return &s.ProxyProtocol }),
		},
		{
			Name: FieldManaged, Text: "managed", Record: "managed", Position: 15, Property: "serviceArguments.managed", Fixed: true,
			form: boolean(func(s *Service) *bool { return &s.Managed }),
		},
		{
			Name: FieldOwner, Text: "owner", Record: "controller", Position: 51, Since: ownerFormat, Property: "serviceArguments.owner",
			form: text(func(s *Service) *string { return &s.Owner }),
		},
		{
			Name: FieldOwnerTime, Text: "owner-time", Record: "controllerTime", Position: 52, Since: ownerFormat, Property: "serviceArguments.ownerTime", Fixed: true,
			Allowed: "a time such as 2026-01-31T23:59:59Z",
			form:    timestamp(func(s *Service) *time.Time { return &s.OwnerTime }),
		},
		{
			Name: FieldName, Text: "name", Record: "name", Position: 1, Property: "serviceArguments.name", Flag: "name",
			Help: "name of the services; need not be unique",
			form: text(func(s *Service) *string { return &s.Name }),
		},
	}
}

// Schema reads, writes, copies and compares services field by field. It is safe for concurrent use.
type Schema struct{ fields []Field[Service] }

// NewSchema returns the schema of services.
func NewSchema() *Schema { return &Schema{fields()} }

// Equal reports whether two services are the same; nil and empty lists are equal.
func (c *Schema) Equal(a, b Service) bool {
	if a.Key != b.Key {
		return false
	}
	for i := range c.fields {
		if !c.fields[i].Same(&a, &b) {
			return false
		}
	}
	return true
}

// Clone returns a copy that shares nothing with s.
func (c *Schema) Clone(s Service) Service {
	out := Service{Key: s.Key}
	for i := range c.fields {
		c.fields[i].Copy(&out, &s)
	}
	return out
}

// Equal is Schema.Equal.
func (s Service) Equal(o Service) bool { return NewSchema().Equal(s, o) }

// Clone is Schema.Clone.
func (s Service) Clone() Service { return NewSchema().Clone(s) }

// Condition is a fact that users should know about a working service.
type Condition struct {
	Type    string // the subject, one word
	Message string // one sentence
}

// Conditions returns the conditions that follow from the service's settings.
func (s *Service) Conditions() (list []Condition) {
	if s.Egress && !s.HasEgressSource() {
		list = append(list, Condition{"Egress", "connections of its endpoints leave with their own addresses, unless a firewall rule translates them: the service has no source address"})
	}
	return list
}

// IneffectiveSetting is a setting that has no effect on the service.
type IneffectiveSetting struct {
	Field, Why string
}

// clientInterval and clientFall are defaults of the existing loxilb's clients, which send them with
// each service.
const (
	clientInterval = time.Minute
	clientFall     = 2
)

// IneffectiveSettings lists settings of a service that have no effect, except defaults of loxilb
// and of the existing loxilb's clients.
func (s *Service) IneffectiveSettings() (list []IneffectiveSetting) {
	const notProbed = "are not probed without monitor or probetype"
	list = s.ineffectiveAnnouncement()
	probed := s.Monitored() || s.Probe.Type != ProbeAuto
	for _, c := range [...]struct {
		is    bool
		field string
		why   string
	}{
		{!probed && s.Probe.Request != "", FieldProbeRequest, notProbed},
		{!probed && s.Probe.Response != "", FieldProbeResponse, notProbed},
		{!probed && s.Probe.Port != 0, FieldProbePort, notProbed},
		{!probed && s.Probe.Host != "", FieldProbeHost, notProbed},
		{!probed && len(s.Probe.Statuses) > 0, FieldProbeStatuses, notProbed},
		{!probed && s.Probe.CA != "", FieldProbeCA, notProbed},
		{!probed && s.Probe.Certificate != "", FieldProbeCertificate, notProbed},
		{!probed && isNonDefault(s.Probe.Interval, DefaultProbeInterval, clientInterval), FieldProbeInterval, notProbed},
		{!probed && isNonDefault(s.Probe.Fall, DefaultProbeFall, clientFall), FieldProbeRetries, notProbed},
		{!probed && isNonDefault(s.Probe.Rise, DefaultProbeRise), FieldProbeRise, notProbed},
		{!probed && s.Probe.Timeout != 0, FieldProbeWait, notProbed},
		{!s.Monitored() && s.OnFail != ClosingKeep, FieldOnFail, notProbed},
		{!s.Monitored() && !s.EjectsOutliers() && s.AllDown != AllDownRefuse, FieldAllDown, notProbed},
		{s.FailoverBelow > 0 && !s.HasBackups(), FieldFailover, "have no backups"},
		{s.SlowStart > 0 && len(s.Endpoints) < 2, FieldSlowStart, "are fewer than two"},
		{s.Outlier == OutlierOn && !s.EjectsOutliers(), FieldOutlier, "are fewer than two"},
		{s.Algorithm.Layout() == LayoutOnce && s.hasMixedWeights(), FieldWeight, "take turns by rr; select priority for weights"},
	} {
		if c.is {
			list = append(list, IneffectiveSetting{c.field, "the endpoints of " + s.Key.String() + " " + c.why})
		}
	}
	return list
}

// isNonDefault reports whether a value is neither zero nor one of the defaults.
func isNonDefault[T comparable](value T, defaults ...T) bool {
	var unset T
	return value != unset && !slices.Contains(defaults, value)
}

// hasMixedWeights reports whether endpoints that get connections have different weights.
func (s *Service) hasMixedWeights() bool {
	first := uint16(0)
	for _, e := range s.Endpoints {
		switch {
		case e.Weight == 0:
		case first == 0:
			first = e.Weight
		case e.Weight != first:
			return true
		}
	}
	return false
}
