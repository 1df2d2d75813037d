package httpapi

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/desired"
	"loxilb/internal/lb"
	"loxilb/internal/store"
)

// oper says what the endpoints of a request are to those that the service has. The numbers are those of the contract.
type oper int

const (
	operReplace oper = 0
	operAttach  oper = 1 // they are added, or take the weight that is given; a service that does not exist is created
	operDetach  oper = 2 // they are taken away, and with the last of them the service
)

// wish is a service as a request writes it.
type wish struct {
	lb.Service
	oper oper
	at   string // prefix of its fields' names
}

func operOf(at string, a *v1.ServiceArguments) (oper, *problem) {
	switch o := oper(a.Oper); o {
	case operReplace, operAttach, operDetach:
		return o, nil
	}
	return 0, refuseField(http.StatusBadRequest, at+"serviceArguments.oper", strconv.Itoa(a.Oper), "is not known",
		"0 (replace the endpoints), 1 (attach) or 2 (detach)")
}

// put does what is wished in a transaction.
func (w *wish) put(tx *store.Tx, services *desired.Services) error {
	s := w.Service
	old, there := services.Get(tx, s.Key)
	switch {
	case w.oper == operDetach && !there:
		return refuse(http.StatusNotFound, "service %s does not exist", s.Key)
	case w.oper != operReplace && there:
		if p := w.unlike(&old); p != nil {
			return p
		}
		all, p := w.endpoints(old.Endpoints)
		if p != nil {
			return p
		}
		if len(all) == 0 {
			return services.Delete(tx, s.Key)
		}
		s = old
		s.Endpoints = all
	case there:
		s.Managed = old.Managed // the contract: an update does not change it
	}
	return services.Put(tx, s)
}

// unlike refuses to attach or detach in one step with another change: only endpoints are meant, and what is written
// beside them must be what the service has, or the default.
func (w *wish) unlike(old *lb.Service) *problem {
	fresh, s := lb.Service{}, &w.Service
	for _, f := range [...]struct {
		field, value, has string
		differs           bool
	}{
		{lb.FieldMode, s.Mode.String(), old.Mode.String(), s.Mode != fresh.Mode && s.Mode != old.Mode},
		{lb.FieldSelect, s.Algorithm.String(), old.Algorithm.String(), s.Algorithm != fresh.Algorithm && s.Algorithm != old.Algorithm},
		{lb.FieldIdleTimeout, s.IdleTimeout.String(), old.IdleTimeout.String(), s.IdleTimeout != 0 && s.IdleTimeout != old.IdleTimeout},
		{lb.FieldName, s.Name, old.Name, s.Name != "" && s.Name != old.Name},
		{lb.FieldSources, strconv.Itoa(len(s.Sources)), strconv.Itoa(len(old.Sources)), len(s.Sources) > 0 && !slices.Equal(s.Sources, old.Sources)},
	} {
		if f.differs {
			return refuseField(http.StatusBadRequest, w.at+property(f.field, -1), f.value,
				"is not what service "+s.Key.String()+" has, and oper "+strconv.Itoa(int(w.oper))+" changes its endpoints only", f.has)
		}
	}
	return nil
}

// endpoints are those of the service once the wish is done, in the order that they had.
func (w *wish) endpoints(have []lb.Endpoint) ([]lb.Endpoint, *problem) {
	at := make(map[netip.AddrPort]int, len(have))
	for i, e := range have {
		at[e.AddrPort()] = i
	}
	out := slices.Clone(have)
	gone := make(map[netip.AddrPort]bool, len(w.Endpoints))
	for i, e := range w.Endpoints {
		place, there := at[e.AddrPort()]
		switch {
		case w.oper == operDetach && !there:
			return nil, refuseField(http.StatusNotFound, w.at+property(lb.FieldEndpoint, i), e.AddrPort().String(),
				"is no endpoint of service "+w.Key.String(), "")
		case w.oper == operDetach:
			gone[e.AddrPort()] = true
		case there:
			out[place] = e
		default:
			out = append(out, e)
		}
	}
	return slices.DeleteFunc(out, func(e lb.Endpoint) bool { return gone[e.AddrPort()] }), nil
}
