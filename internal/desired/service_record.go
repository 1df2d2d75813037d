package desired

import (
	"encoding/json"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/store"
)

// serviceFormat is the format of a service's record. Whoever adds a member takes the next number, and has
// encodeService give it only to services with that member: so all others stay readable for older versions of loxilb.
const serviceFormat = 2

// serviceRecord is a service in words, so that it means the same wherever it is read.
type serviceRecord struct {
	Service        string   `json:"service"`         // the key
	Owner          string   `json:"owner,omitempty"` // the store's, in files of version 2
	Name           string   `json:"name,omitempty"`
	Mode           string   `json:"mode"`
	Select         string   `json:"select"`
	Endpoints      []string `json:"endpoints"`
	Refuse         string   `json:"refuse,omitempty"`
	Tunnel         string   `json:"tunnel,omitempty"`
	MSS            uint16   `json:"mss,omitempty"`
	Idle           int64    `json:"idle,omitempty"` // seconds
	Sources        []string `json:"sources,omitempty"`
	SNAT           []string `json:"snat,omitempty"`
	Secondary      []string `json:"secondary,omitempty"`
	Egress         bool     `json:"egress,omitempty"`
	PersistTimeout int64    `json:"persistTimeout,omitempty"` // seconds
	PersistPrefix  uint8    `json:"persistPrefix,omitempty"`
	Managed        bool     `json:"managed,omitempty"`
}

func recordOfService(s lb.Service) serviceRecord {
	r := serviceRecord{
		Service: s.Key.String(), Name: s.Name, Mode: s.Mode.String(), Select: s.Algorithm.String(),
		Endpoints: make([]string, len(s.Endpoints)), Idle: int64(s.IdleTimeout / time.Second), Managed: s.Managed,
	}
	r.PersistTimeout, r.PersistPrefix = int64(s.PersistTimeout/time.Second), s.PersistPrefix
	for i, e := range s.Endpoints {
		r.Endpoints[i] = e.String()
	}
	if s.Refuse != lb.RefuseReject {
		r.Refuse = s.Refuse.String()
	}
	if s.Tunnel != lb.TunnelNone {
		r.Tunnel = s.Tunnel.String()
	}
	r.MSS, r.Egress = s.MSS, s.Egress
	for _, a := range s.SNAT {
		r.SNAT = append(r.SNAT, a.String())
	}
	for _, a := range s.Secondary {
		r.Secondary = append(r.Secondary, a.String())
	}
	for _, p := range s.Sources {
		r.Sources = append(r.Sources, p.String())
	}
	return r
}

// service is the inverse of recordOfService.
func (r *serviceRecord) service() (s lb.Service, err error) {
	if s.Key, err = lb.ParseKey(r.Service); err != nil {
		return s, err
	}
	if s.Mode, err = lb.ParseMode(r.Mode); err != nil {
		return s, err
	}
	if s.Algorithm, err = lb.ParseAlgorithm(r.Select); err != nil {
		return s, err
	}
	if s.Tunnel, err = lb.ParseTunnel(r.Tunnel); err != nil {
		return s, err
	}
	if s.Refuse, err = lb.ParseRefusal(r.Refuse); err != nil {
		return s, err
	}
	s.MSS, s.Egress = r.MSS, r.Egress
	s.Endpoints = make([]lb.Endpoint, len(r.Endpoints))
	for i, text := range r.Endpoints {
		if s.Endpoints[i], err = lb.ParseEndpoint(text); err != nil {
			return s, err
		}
	}
	if r.Sources != nil {
		if s.Sources, err = lb.ParseSources(r.Sources); err != nil {
			return s, err
		}
	}
	if s.SNAT, err = lb.ParseSNAT(r.SNAT); err != nil {
		return s, err
	}
	if s.Secondary, err = lb.ParseSecondary(r.Secondary); err != nil {
		return s, err
	}
	s.PersistTimeout, s.PersistPrefix = time.Duration(r.PersistTimeout)*time.Second, r.PersistPrefix
	s.Name, s.Managed, s.IdleTimeout = r.Name, r.Managed, time.Duration(r.Idle)*time.Second
	return s, s.Validate()
}

func encodeService(s lb.Service) (format int, object []byte, err error) {
	object, err = json.Marshal(recordOfService(s))
	return serviceFormat, object, err
}

func decodeService(_ int, object []byte) (lb.Service, error) {
	var r serviceRecord
	if err := store.DecodeStrict(object, &r); err != nil {
		return lb.Service{}, err
	}
	return r.service()
}
