package lb

import (
	"net/netip"
	"strings"
)

// EndpointProbe defines how to probe an address, whether or not it is an endpoint of a service. It
// replaces a service's probe of the same name (NameOfProbe).
type EndpointProbe struct {
	Name  string // "": NameOfProbe
	Addr  netip.Addr
	Probe Probe
}

// Key names it among others.
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

// Complete returns its probe with every default written out.
func (e *EndpointProbe) Complete() Probe { return e.Probe.complete() }

// Validate checks every field, and returns a *FieldError for the first that is refused.
func (e EndpointProbe) Validate() error {
	if err := probeUse(FieldEndpointAddress, e.Addr); err != nil {
		return err
	}
	if err := ValidateName(e.Name); err != nil {
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

// EndpointProbeFields returns its fields, with the contract's properties.
func EndpointProbeFields() []Field[EndpointProbe] {
	list := []Field[EndpointProbe]{
		{
			Name: FieldEndpointAddress, Record: "host", Property: "hostName", Required: true, Always: true,
			form: address(func(e *EndpointProbe) *netip.Addr { return &e.Addr }),
		},
		{
			Name: FieldName, Record: "name", Property: "name", Flag: "name",
			Help: "name of the probe (default like 10.0.0.1_tcp_80, which replaces the probe of a service at that address and port)",
			form: line(func(e *EndpointProbe) *string { return &e.Name }),
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

// MarshalRecord writes it as journals have it.
func (e *EndpointProbe) MarshalRecord() ([]byte, error) {
	return marshalMembers(e, EndpointProbeFields(), nil)
}

// UnmarshalEndpointProbe parses what MarshalRecord writes, and validates it. It refuses unknown
// members and words.
func UnmarshalEndpointProbe(data []byte) (e EndpointProbe, err error) {
	if err := unmarshalMembers(&e, EndpointProbeFields(), data); err != nil {
		return e, err
	}
	return e, e.Validate()
}

// ParseHostState parses the contract's words for whether the endpoint is taken out, regardless of
// probes.
func ParseHostState(s string) (out bool, err error) {
	switch strings.ToLower(s) {
	case "green", "yellow":
		return false, nil
	case "red":
		return true, nil
	}
	return false, NewFieldError("state", s, "is not known", "green or yellow (its probe decides), red (it takes no new connection)")
}
