package services

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// oper is how a request's endpoints relate to the service's. The numbers are the existing loxilb's.
type oper int

const (
	operReplace oper = 0
	operAttach  oper = 1 // they are added, or take the weight that is given; a service that does not exist is created
	operDetach  oper = 2 // endpoints are removed, and the service with the last of them
)

// request is a service as a request writes it.
type request struct {
	lb.Service
	oper oper
	at   string // prefix of its fields' names
	// notes are warnings about the request's interpretation.
	notes rest.Warnings
}

func operOf(at string, a *v1.ServiceArguments) (oper, *rest.Problem) {
	switch o := oper(a.Oper); o {
	case operReplace, operAttach, operDetach:
		return o, nil
	}
	return 0, rest.RefuseField(http.StatusBadRequest, at+"serviceArguments.oper", strconv.Itoa(a.Oper), "is not known",
		"0 (replace the endpoints), 1 (attach) or 2 (detach)")
}

// put applies the request in a transaction.
func (r *request) put(tx *store.Tx, services *desired.Services, c *codec, notes *rest.Warnings) error {
	s := r.Service
	old, exists := services.Get(tx, s.Key)
	switch {
	case r.oper == operDetach && !exists:
		notes.Add("service %s does not exist", s.Key)
		return nil
	case r.oper != operReplace && exists:
		r.noteIgnored(&old, c, notes)
		all := r.endpoints(old.Endpoints, notes)
		if len(all) == 0 {
			return services.Delete(tx, s.Key)
		}
		s = old
		s.Endpoints = all
	case exists:
		for i := range c.fields {
			if f := &c.fields[i]; f.Fixed {
				f.Copy(&s, &old)
			}
		}
	}
	c.setOwnerTime(&s, &old)
	return services.Put(tx, s)
}

// setOwnerTime records when the owner of a service last changed it, so abandoned services can be
// found. An unchanged service keeps its time.
func (c *codec) setOwnerTime(s, old *lb.Service) {
	s.OwnerTime = time.Time{}
	if s.Owner == "" {
		return
	}
	s.OwnerTime = old.OwnerTime
	same := slices.Equal(s.Endpoints, old.Endpoints)
	for i := range c.fields {
		same = same && c.fields[i].Same(s, old)
	}
	if !same || s.OwnerTime.IsZero() {
		s.OwnerTime = time.Now().UTC().Truncate(time.Second)
	}
}

// noteIgnored adds a warning for each property that a request to attach or detach endpoints sets to
// another value than the service has. These properties are ignored: several controllers with
// different settings may maintain one service.
func (r *request) noteIgnored(old *lb.Service, c *codec, notes *rest.Warnings) {
	for i := range c.fields {
		f := &c.fields[i]
		if f.Fixed || f.IsDefault(&r.Service) || f.Same(&r.Service, old) {
			continue
		}
		notes.Add("%s stays %s, not %s: oper %d changes the endpoints of service %s only",
			r.at+f.Property, f.Show(old), lb.Printable(f.Show(&r.Service)), r.oper, r.Key)
	}
}

// endpoints returns the service's endpoints after the request, in their previous order.
func (r *request) endpoints(have []lb.Endpoint, notes *rest.Warnings) []lb.Endpoint {
	at := make(map[netip.AddrPort]int, len(have))
	for i, e := range have {
		at[e.AddrPort()] = i
	}
	out := slices.Clone(have)
	gone := make(map[netip.AddrPort]bool, len(r.Endpoints))
	for i, e := range r.Endpoints {
		index, exists := at[e.AddrPort()]
		switch {
		case r.oper == operDetach && !exists:
			notes.Add("%s does not exist: %s is not an endpoint of service %s", r.at+PropertyOf(lb.FieldEndpoint, i), e.AddrPort(), r.Key)
		case r.oper == operDetach:
			gone[e.AddrPort()] = true
		case exists:
			out[index] = e
		default:
			out = append(out, e)
		}
	}
	return slices.DeleteFunc(out, func(e lb.Endpoint) bool { return gone[e.AddrPort()] })
}
