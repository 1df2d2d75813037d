package services

import (
	"net/http"
	"slices"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// weightChange is a new weight of an endpoint.
type weightChange struct {
	endpoint lb.Drain // its address, and perhaps its port
	weight   uint16
	service  *lb.Key // nil: any service
	name     string  // of services; "": of any
}

// SetEndpointWeight changes the weight of an endpoint in its services.
func (a *API) SetEndpointWeight(w http.ResponseWriter, r *http.Request) {
	c, p := rest.Decode(a.Reader, w, r, decodeWeight)
	if p != nil {
		p.Write(w)
		return
	}
	var notes rest.Warnings
	a.Objects.Commit(w, r, false, func(tx *store.Tx, _ *objects.Precondition) error {
		defer notes.Write(w)
		found := false
		for s := range a.Store.Services.All(tx) {
			if !c.appliesTo(&s) {
				continue
			}
			found = true
			s.Endpoints = slices.Clone(s.Endpoints)
			for i := range s.Endpoints {
				if e := &s.Endpoints[i]; c.endpoint.Matches(e.Addr, e.Port) {
					e.Weight = c.weight
				}
			}
			warnIneffective(&s, &notes)
			if err := a.Store.Services.Put(tx, s); err != nil {
				return err
			}
		}
		if !found {
			return rest.RefuseField(http.StatusNotFound, "endpoint", c.endpoint.Key(), "is not an endpoint of "+c.scope(), "")
		}
		return nil
	})
}

func decodeWeight(data []byte) (c weightChange, p *rest.Problem) {
	body, p := rest.Unmarshal[v1.EndpointWeight](data)
	if p != nil {
		return c, p
	}
	var err error
	if c.endpoint, err = lb.ParseDrain(body.Endpoint); err != nil {
		return c, rest.BadRequest(err)
	}
	const allowed = "0 to 65535"
	switch {
	case body.Weight == nil:
		return c, rest.RefuseField(http.StatusBadRequest, "weight", "", "is missing", allowed)
	case *body.Weight < 0 || *body.Weight > lb.MaxWeight:
		return c, rest.RefuseField(http.StatusBadRequest, "weight", strconv.Itoa(*body.Weight), "is out of range", allowed)
	case body.Service != "" && body.ServName != "":
		return c, rest.RefuseField(http.StatusBadRequest, "servName", body.ServName, "cannot be combined with a service", "service or servName")
	}
	c.weight, c.name = uint16(*body.Weight), body.ServName
	if body.Service != "" {
		key, err := lb.ParseKey(body.Service)
		if err != nil {
			return c, rest.BadRequest(rest.RenameField("service", err))
		}
		c.service = &key
	}
	return c, nil
}

// appliesTo reports whether the service has the endpoint, and is one of those requested.
func (c *weightChange) appliesTo(s *lb.Service) bool {
	return (c.service == nil || *c.service == s.Key) && (c.name == "" || c.name == s.Name) &&
		slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool { return c.endpoint.Matches(e.Addr, e.Port) })
}

func (c *weightChange) scope() string {
	switch {
	case c.service != nil:
		return "service " + c.service.String()
	case c.name != "":
		return "a service named " + strconv.Quote(c.name)
	}
	return "any service"
}
