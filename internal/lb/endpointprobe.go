package lb

import (
	"cmp"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// EndpointProbe defines how to probe an address, whether or not it is an endpoint of a service. It
// replaces a service's probe of the same name (NameOfProbe).
type EndpointProbe struct {
	Name  string // "": NameOfProbe
	Addr  netip.Addr
	Probe Probe
}

// Key returns the unique name of the probe.
func (e *EndpointProbe) Key() string {
	if e.Name != "" {
		return e.Name
	}
	return NameOfProbe(e.Addr, &e.Probe)
}

// Normal returns the probe without redundant members; an empty probe becomes a ping.
func (e EndpointProbe) Normal() EndpointProbe {
	if e.Probe.Type == ProbeAuto {
		e.Probe.Type = ProbePing
	}
	if e.Name == NameOfProbe(e.Addr, &e.Probe) {
		e.Name = ""
	}
	return e
}

// Complete returns the probe with all defaults filled in.
func (e *EndpointProbe) Complete() Probe { return e.Probe.complete() }

// Validate checks every field, and returns a *FieldError for the first that is refused.
func (e EndpointProbe) Validate() error {
	if err := checkProbeable(FieldEndpointAddress, e.Addr); err != nil {
		return err
	}
	if err := ValidateName(FieldName, e.Name); err != nil {
		return err
	}
	if err := e.Probe.validate(); err != nil {
		return err
	}
	if e.Probe.Type.hasPort() && e.Probe.Port == 0 {
		return NewFieldError(FieldProbePort, "0", "is zero, and probe type "+e.Probe.Type.String()+" needs one", "1 to 65535")
	}
	return nil
}

// EndpointProbeFields returns the fields, with the API's properties.
func EndpointProbeFields() []Field[EndpointProbe] {
	list := []Field[EndpointProbe]{
		{
			Name: FieldEndpointAddress, Record: "host", Property: "hostName", Required: true, Always: true,
			form: address(func(e *EndpointProbe) *netip.Addr { return &e.Addr }),
		},
		{
			Name: FieldName, Record: "name", Property: "name", Flag: "name",
			Help: "name of the probe (default like 10.0.0.1_tcp_80, which replaces the probe of a service at that address and port)",
			form: text(func(e *EndpointProbe) *string { return &e.Name }),
		},
	}
	contract := map[string]string{
		"probetype": "probeType", "probeport": "probePort", "probereq": "probeReq", "proberesp": "probeResp", "probeRetries": "inactiveReTries",
	}
	for _, f := range probeFields(func(e *EndpointProbe) *Probe { return &e.Probe }) {
		if name, ok := contract[f.Property]; ok {
			f.Property = name
		}
		if f.Name == FieldProbePort {
			f.Help = "port that is probed, which all types but ping and none need"
		}
		list = append(list, f)
	}
	return list
}

// OtherNames returns texts by which users can select a probe instead of its name: the address, and
// the address with the port.
func (e *EndpointProbe) OtherNames() []string {
	list := []string{e.Addr.String()}
	if e.Probe.Port != 0 {
		list = append(list, netip.AddrPortFrom(e.Addr, e.Probe.Port).String())
	}
	return list
}

// MarshalRecord writes the journal's form.
func (e *EndpointProbe) MarshalRecord() ([]byte, error) {
	return marshalMembers(e, EndpointProbeFields(), nil)
}

// UnmarshalEndpointProbe is the inverse of MarshalRecord, and validates the result. It refuses
// unknown members and words.
func UnmarshalEndpointProbe(data []byte) (e EndpointProbe, err error) {
	if err := unmarshalMembers(&e, EndpointProbeFields(), data); err != nil {
		return e, err
	}
	return e, e.Validate()
}

// ParseHostState parses the API's word for the state that an agent reports, and reports whether the
// endpoint is taken out, regardless of probes.
func ParseHostState(s string) (out bool, err error) {
	switch strings.ToLower(s) {
	case "green", "yellow":
		return false, nil
	case "red":
		return true, nil
	}
	return false, NewFieldError("state", s, "is not known", "green or yellow (its probe decides), red (it takes no new connection)")
}

// Limits of a probe's members.
const (
	maxProbeText     = 1024 // bytes of a request, a response or a file name
	maxProbeHost     = 253
	maxProbeStatuses = 16
	MaxProbeCount    = 100
	minProbeInterval = 100 * time.Millisecond
	MaxProbeInterval = 24 * time.Hour
	minProbeTimeout  = 10 * time.Millisecond

	probeStatusesAllowed = "100 to 599, alone or as in 200-299, at most 16 of them"
)

// validateMonitor checks the probe settings, even while probing is off.
func (s Service) validateMonitor() error {
	if err := wordError(FieldAllDown, s.AllDown, allDowns()); err != nil {
		return err
	}
	p := s.Probe
	p.Type = s.probeType()
	if err := p.validate(); err != nil {
		return err
	}
	if !s.probedExplicitly() {
		return nil
	}
	for _, e := range s.Endpoints {
		if err := checkProbeable(FieldEndpointAddress, e.Addr); err != nil && p.Type != ProbeNone {
			return err
		}
	}
	if p.Port != 0 || !p.Type.hasPort() {
		return nil
	}
	switch {
	case !s.Protocol.HasPorts():
		return NewFieldError(FieldProbePort, "0", "is zero, and "+s.Protocol.String()+" has no ports", "1 to 65535")
	case s.AllPorts():
		return NewFieldError(FieldProbePort, "0", "is zero, and the service has all ports", "1 to 65535")
	}
	return nil
}

// validate checks a probe by itself. Whether Port may be 0 depends on the caller.
func (p Probe) validate() error {
	if err := wordError(FieldProbeType, p.Type, probeTypes()); err != nil {
		return err
	}
	if p.Port != 0 && !p.Type.hasPort() {
		return NewFieldError(FieldProbePort, strconv.Itoa(int(p.Port)), "is set, but probe type "+p.Type.String()+" has no port", "0")
	}
	for _, check := range []func(Probe) error{Probe.validateTimes, Probe.validateRequest, Probe.validateResponse, Probe.validateHTTP, Probe.validateTLS} {
		if err := check(p); err != nil {
			return err
		}
	}
	return nil
}

func (p Probe) validateTimes() error {
	for _, c := range [...]struct {
		field string
		n     int
	}{{FieldProbeRetries, p.Fall}, {FieldProbeRise, p.Rise}} {
		if c.n < 0 || c.n > MaxProbeCount {
			return NewFieldError(c.field, strconv.Itoa(c.n), "is out of range", "0 (the default) to "+strconv.Itoa(MaxProbeCount))
		}
	}
	if d := p.Interval; d != 0 && (d < minProbeInterval || d > MaxProbeInterval) {
		return NewFieldError(FieldProbeInterval, d.String(), "is out of range", "100ms to 24h; 0 is the default")
	}
	interval := cmp.Or(p.Interval, DefaultProbeInterval)
	if d := p.Timeout; d != 0 && (d < minProbeTimeout || d > interval) {
		return NewFieldError(FieldProbeWait, d.String(), "is out of range", "10ms to the probe interval, "+interval.String()+"; 0 is the default")
	}
	return nil
}

func (p Probe) validateRequest() error {
	refuse := func(reason, allowed string) error {
		return NewFieldError(FieldProbeRequest, p.Request, reason, allowed)
	}
	switch {
	case len(p.Request) > maxProbeText || !utf8.ValidString(p.Request):
		return refuse("is too long, or not UTF-8", "up to "+strconv.Itoa(maxProbeText)+" bytes of UTF-8")
	case p.Type == ProbeDNS && !isDomain(p.Request):
		return refuse("is not a valid DNS name", "a domain name, as in www.example.com")
	case p.Request == "":
		return nil
	case !p.Type.hasPort() || p.Type == ProbeSCTP:
		return refuse("is set, but probe type "+p.Type.String()+" sends no such text", "nothing")
	case p.Type.isHTTP() && !isPath(p.Request):
		return refuse("is not the path of a URL", "a path, as in /health?full=1, without spaces")
	case p.Type == ProbeGRPC && !isVisibleASCII(p.Request):
		return refuse("is not the name of a service", "printable characters without spaces")
	}
	return nil
}

func (p Probe) validateResponse() error {
	refuse := func(reason, allowed string) error {
		return NewFieldError(FieldProbeResponse, p.Response, reason, allowed)
	}
	switch {
	case p.Response == "":
		return nil
	case len(p.Response) > maxProbeText || !utf8.ValidString(p.Response):
		return refuse("is too long, or not UTF-8", "up to "+strconv.Itoa(maxProbeText)+" bytes of UTF-8")
	case !p.Type.hasPort() || p.Type == ProbeGRPC || p.Type == ProbeSCTP:
		return refuse("is set, but probe type "+p.Type.String()+" does not look for a response", "nothing")
	case p.Type == ProbeDNS:
		if _, err := netip.ParseAddr(p.Response); err != nil {
			return refuse("is not an IP address", "an IPv4 or IPv6 address that the name has")
		}
	}
	return nil
}

func (p Probe) validateHTTP() error {
	switch {
	case p.Host != "" && !p.Type.isHTTP() && p.Type != ProbeGRPC:
		return NewFieldError(FieldProbeHost, p.Host, "is set, but probe type "+p.Type.String()+" has no host", "nothing")
	case len(p.Statuses) > 0 && !p.Type.isHTTP():
		return NewFieldError(FieldProbeStatus, p.Statuses[0].String(), "is set, but probe type "+p.Type.String()+" has no status", "nothing")
	}
	if len(p.Host) > maxProbeHost || strings.ContainsFunc(p.Host, isInvalidInHost) {
		return NewFieldError(FieldProbeHost, p.Host, "is not a host", "a name or an address, optionally with :PORT")
	}
	if n := len(p.Statuses); n > maxProbeStatuses {
		return NewFieldError(FieldProbeStatuses, strconv.Itoa(n), "is too many", probeStatusesAllowed)
	}
	for _, r := range p.Statuses {
		if r.First < 100 || r.Last > 599 || r.First > r.Last {
			return NewFieldError(FieldProbeStatus, r.String(), "is neither a status nor a range of statuses", probeStatusesAllowed)
		}
	}
	return nil
}

func (p Probe) validateTLS() error {
	for _, f := range [...]struct{ field, value string }{
		{FieldProbeCA, p.CA}, {FieldProbeCertificate, p.Certificate}, {FieldProbeKey, p.Key},
	} {
		switch {
		case f.value == "":
		case p.Type != ProbeHTTPS && p.Type != ProbeGRPC:
			return NewFieldError(f.field, f.value, "is set, but probe type "+p.Type.String()+" has no TLS", "nothing")
		case !strings.HasPrefix(f.value, "/") || len(f.value) > maxProbeText || !isPrintable(f.value):
			return NewFieldError(f.field, f.value, "is not an absolute path", "such as /etc/loxilb/probes/ca.pem, on the load balancer")
		}
	}
	switch {
	case p.Certificate == "" && p.Key != "":
		return NewFieldError(FieldProbeCertificate, "", "is missing, but a probe key is set", "both or neither")
	case p.Certificate != "" && p.Key == "":
		return NewFieldError(FieldProbeKey, "", "is missing, but a probe certificate is set", "both or neither")
	}
	return nil
}

// isPath reports whether HTTP can request s: a fragment is not sent, and "%" begins an escaped
// byte.
func isPath(s string) bool {
	if strings.Contains(s, "://") || strings.Contains(s, "#") || !isVisibleASCII(s) {
		return false
	}
	_, err := url.ParseRequestURI("/" + strings.TrimPrefix(s, "/"))
	return err == nil
}

// isInvalidInHost reports whether net/http refuses the rune in a host. It also refuses "@", which
// would end the user information of a URL.
func isInvalidInHost(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return !letter && !strings.ContainsRune("!$%&()*+,-.:;=[]'_~", r)
}

// isVisibleASCII reports whether s has only visible ASCII characters.
func isVisibleASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// isPrintable reports whether s has only printable characters, so it fits on one line.
func isPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// isDomain reports whether s is a valid DNS name: labels of 1 to 63 letters, digits, - and _.
func isDomain(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if len(s) > maxProbeHost {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if len(label) == 0 || len(label) > 63 || strings.ContainsFunc(label, func(r rune) bool {
			return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
		}) {
			return false
		}
	}
	return true
}
