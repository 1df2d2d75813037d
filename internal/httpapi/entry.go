package httpapi

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// entries lists what a request asks for; each with the path by which errors name it.
func entries(req *v1.LoadbalanceRequest) (list []v1.LoadbalanceEntry, bulk bool, p *problem) {
	if req.LbAttr != nil {
		if req.ServiceArguments != nil || req.Endpoints != nil || req.SecondaryIPs != nil || req.AllowedSources != nil {
			return nil, true, refuse(http.StatusBadRequest, "lbAttr stands beside another property: write either one service or lbAttr alone")
		}
		return req.LbAttr, true, nil
	}
	if req.ServiceArguments == nil {
		return nil, false, refuseField(http.StatusBadRequest, "serviceArguments", "", "is missing", "the arguments of a service, or lbAttr with a list")
	}
	return []v1.LoadbalanceEntry{{
		ServiceArguments: *req.ServiceArguments, Endpoints: req.Endpoints,
		SecondaryIPs: req.SecondaryIPs, AllowedSources: req.AllowedSources,
	}}, false, nil
}

// services turns all of a request into services. Two that share a key are refused: which of them was meant?
func services(list []v1.LoadbalanceEntry, bulk bool) ([]wish, *problem) {
	out := make([]wish, 0, len(list))
	seen := make(map[lb.Key]int, len(list))
	for i := range list {
		at := ""
		if bulk {
			at = fmt.Sprintf("lbAttr[%d].", i)
		}
		s, p := serviceOf(at, &list[i])
		if p != nil {
			return nil, p
		}
		if first, ok := seen[s.Key]; ok {
			return nil, refuseField(http.StatusBadRequest, at+"serviceArguments", s.Key.String(),
				fmt.Sprintf("is there twice, in lbAttr[%d] and lbAttr[%d]", first, i), "each service once")
		}
		o, p := operOf(at, &list[i].ServiceArguments)
		if p != nil {
			return nil, p
		}
		seen[s.Key] = i
		out = append(out, wish{s, o, at})
	}
	return out, nil
}

// serviceOf turns an entry into a service that passed lb's validation. at is a prefix for the names of fields.
func serviceOf(at string, e *v1.LoadbalanceEntry) (lb.Service, *problem) {
	a := &e.ServiceArguments
	if p := unavailable(at, e); p != nil {
		return lb.Service{}, p
	}
	s, err := arguments(a)
	if err == nil {
		s.Sources, err = sources(e.AllowedSources)
	}
	if err == nil {
		s.Secondary, err = secondary(e.SecondaryIPs)
	}
	if err == nil {
		s.Endpoints = make([]lb.Endpoint, len(e.Endpoints))
		for i := range e.Endpoints {
			ep, err := endpointOf(&e.Endpoints[i])
			if err != nil {
				return s, entryProblem(at, i, err)
			}
			s.Endpoints[i] = ep
		}
		err = s.Validate()
	}
	if err != nil {
		return s, entryProblem(at, faulty(&s, err), err)
	}
	return s, nil
}

func arguments(a *v1.ServiceArguments) (s lb.Service, err error) {
	if s.VIP, err = lb.ParseAddr(lb.FieldVIP, a.ExternalIP); err != nil {
		return s, err
	}
	if s.Port, err = number(lb.FieldPort, a.Port, "1 to 65535"); err != nil {
		return s, err
	}
	if s.PortMax, err = number(lb.FieldPortMax, a.PortMax, "0 (one port), or up to 65535"); err != nil {
		return s, err
	}
	if s.PortMax == s.Port {
		s.PortMax = 0
	}
	if a.Block < 0 || a.Block > math.MaxUint32 {
		return s, lb.NewFieldError(lb.FieldMark, strconv.Itoa(a.Block), "is out of range", "0 (any) to 4294967295")
	}
	s.Mark = uint32(a.Block)
	if s.Protocol, err = lb.ParseProtocol(a.Protocol); err != nil {
		return s, err
	}
	if s.Mode, err = lb.ParseMode(choice(a.Mode)); err != nil {
		return s, err
	}
	sel := choice(a.Sel)
	if s.Algorithm, err = lb.ParseAlgorithm(sel); err != nil {
		return s, err
	}
	if a.Select != "" {
		other, err := lb.ParseAlgorithm(string(a.Select))
		if err != nil {
			return s, err
		}
		if a.Sel != "" && other != s.Algorithm {
			return s, lb.NewFieldError(lb.FieldSelect, string(a.Select), "is not what sel says", "sel or select")
		}
		s.Algorithm = other
	}
	// Compared before it is multiplied: a Duration holds 292 years.
	if limit := int(lb.MaxIdleTimeout / time.Second); a.InactiveTimeOut < 0 || a.InactiveTimeOut > limit {
		return s, lb.NewFieldError(lb.FieldIdleTimeout, strconv.Itoa(a.InactiveTimeOut), "is out of range",
			"0 (the default of the protocol) to "+strconv.Itoa(limit)+" seconds")
	}
	s.IdleTimeout = time.Duration(a.InactiveTimeOut) * time.Second
	if err := persistArguments(&s, a); err != nil {
		return s, err
	}
	s.Name, s.Managed, s.Egress = a.Name, a.Managed, a.Egress
	if s.Tunnel, err = lb.ParseTunnel(a.Tunnel); err != nil {
		return s, err
	}
	if s.Refuse, err = lb.ParseRefusal(a.Refuse); err != nil {
		return s, err
	}
	if s.MSS, err = number(lb.FieldMSS, a.Mss, "0 (as the two sides have it), or 88 to 65495"); err != nil {
		return s, err
	}
	s.SNAT, err = snatOf(a)
	return s, err
}

func secondary(list []v1.SecondaryIP) ([]netip.Addr, error) {
	var text []string
	for _, one := range list {
		text = append(text, one.SecondaryIP)
	}
	return lb.ParseSecondary(text)
}

// snatOf reads the addresses that sources become; privateIP is the contract's word for a single one.
func snatOf(a *v1.ServiceArguments) ([]netip.Addr, error) {
	list := a.SnatIPs
	if a.PrivateIP != "" && a.PrivateIP != a.ExternalIP {
		if len(list) > 0 && !(len(list) == 1 && list[0] == a.PrivateIP) {
			return nil, lb.NewFieldError(lb.FieldSNAT, a.PrivateIP, "is privateIP, and not what snatIPs says", "privateIP or snatIPs")
		}
		list = []string{a.PrivateIP}
	}
	return lb.ParseSNAT(list)
}

func persistArguments(s *lb.Service, a *v1.ServiceArguments) error {
	if limit := int(lb.MaxPersistTimeout / time.Second); a.PersistTimeout < 0 || a.PersistTimeout > limit {
		return lb.NewFieldError(lb.FieldPersistTimeout, strconv.Itoa(a.PersistTimeout), "is out of range",
			"0 (10800) to "+strconv.Itoa(limit)+" seconds")
	}
	s.PersistTimeout = time.Duration(a.PersistTimeout) * time.Second
	prefix, err := lb.ParsePersistPrefix(strconv.Itoa(a.PersistPrefix))
	s.PersistPrefix = prefix
	return err
}

// choice is the default of the contract where nothing is written.
func choice(c v1.Choice) string {
	if c == "" {
		return "0"
	}
	return string(c)
}

func endpointOf(e *v1.Endpoint) (ep lb.Endpoint, err error) {
	if ep.Addr, err = lb.ParseAddr(lb.FieldEndpointAddress, e.EndpointIP); err != nil {
		return ep, err
	}
	if ep.Port, err = number(lb.FieldEndpointPort, e.TargetPort, "1 to 65535"); err != nil {
		return ep, err
	}
	if ep.PortMax, err = number(lb.FieldEndpointPortMax, e.TargetPortMax, "0 (one port), or up to 65535"); err != nil {
		return ep, err
	}
	if e.Weight == nil {
		return ep, lb.NewFieldError(lb.FieldWeight, "", "is missing", "0 to 65535")
	}
	ep.Weight, err = number(lb.FieldWeight, *e.Weight, "0 to 65535")
	return ep, err
}

func sources(list []v1.AllowedSource) ([]netip.Prefix, error) {
	if len(list) == 0 {
		return nil, nil
	}
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = s.Prefix
	}
	return lb.ParseSources(words)
}

func number(field string, n int, allowed string) (uint16, error) {
	if n < 0 || n > 65535 {
		return 0, lb.NewFieldError(field, strconv.Itoa(n), "is out of range", allowed)
	}
	return uint16(n), nil
}

// entryProblem renames the field of an error into the API's words. endpoint is the index of the endpoint that is
// at fault, or -1.
func entryProblem(at string, endpoint int, err error) *problem {
	var fe *lb.FieldError
	if !errors.As(err, &fe) {
		return refuse(http.StatusBadRequest, "%s%v", at, err)
	}
	named := *fe
	named.Field = at + property(fe.Field, endpoint)
	return fieldProblem(http.StatusBadRequest, &named)
}

// property is what the API calls a field of lb.
func property(field string, endpoint int) string {
	list := "endpoints"
	if endpoint >= 0 {
		list = fmt.Sprintf("endpoints[%d]", endpoint)
	}
	const args = "serviceArguments."
	switch field {
	case lb.FieldVIP:
		return args + "externalIP"
	case lb.FieldPort:
		return args + "port"
	case lb.FieldPortMax, lb.FieldPorts:
		return args + "portMax"
	case lb.FieldMark:
		return args + "block"
	case lb.FieldSource, lb.FieldSources:
		return "allowedSources"
	case lb.FieldProtocol:
		return args + "protocol"
	case lb.FieldMode:
		return args + "mode"
	case lb.FieldSelect:
		return args + "sel"
	case lb.FieldIdleTimeout:
		return args + "inactiveTimeOut"
	case lb.FieldPersistTimeout:
		return args + "persistTimeout"
	case lb.FieldPersistPrefix:
		return args + "persistPrefix"
	case lb.FieldName:
		return args + "name"
	case lb.FieldSecondary:
		return "secondaryIPs"
	case lb.FieldSNAT:
		return args + "snatIPs"
	case lb.FieldTunnel:
		return args + "tunnel"
	case lb.FieldEgress:
		return args + "egress"
	case lb.FieldRefuse:
		return args + "refuse"
	case lb.FieldMSS:
		return args + "mss"
	case lb.FieldManaged:
		return args + "managed"
	case lb.FieldEndpoint, lb.FieldEndpoints:
		return list
	case lb.FieldEndpointAddress:
		return list + ".endpointIP"
	case lb.FieldEndpointPort:
		return list + ".targetPort"
	case lb.FieldEndpointPortMax:
		return list + ".targetPortMax"
	case lb.FieldWeight:
		return list + ".weight"
	}
	return field
}

// faulty finds the endpoint that validation refused; the last with its value, since a second is what is refused of
// two that are the same. -1 when it is none.
func faulty(s *lb.Service, err error) int {
	var fe *lb.FieldError
	if !errors.As(err, &fe) {
		return -1
	}
	for i := len(s.Endpoints) - 1; i >= 0; i-- {
		e := &s.Endpoints[i]
		switch fe.Field {
		case lb.FieldEndpoint:
			if fe.Value == e.AddrPort().String() {
				return i
			}
		case lb.FieldEndpointAddress:
			if fe.Value == e.Addr.String() {
				return i
			}
		case lb.FieldEndpointPort:
			if fe.Value == strconv.Itoa(int(e.Port)) {
				return i
			}
		case lb.FieldEndpointPortMax:
			if fe.Value == strconv.Itoa(int(e.PortMax)) {
				return i
			}
		}
	}
	return -1
}
