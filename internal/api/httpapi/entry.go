package httpapi

import (
	"fmt"
	"net/http"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb"
)

// entries lists what a request asks for, and tells whether it was written as a list.
func entries(req *v1.LoadbalanceRequest) (list []v1.LoadbalanceEntry, bulk bool, p *rest.Problem) {
	if req.LbAttr != nil {
		if !req.Alone() {
			return nil, true, rest.Refuse(http.StatusBadRequest, "lbAttr does not go with another property: write either one service or lbAttr alone")
		}
		return req.LbAttr, true, nil
	}
	if req.ServiceArguments == nil {
		return nil, false, rest.RefuseField(http.StatusBadRequest, "serviceArguments", "", "is missing", "the arguments of a service, or lbAttr with a list")
	}
	return []v1.LoadbalanceEntry{req.Entry()}, false, nil
}

// services turns all of a request into services. Two that share a key are refused: which of them
// was meant?
func (c *codec) services(list []v1.LoadbalanceEntry, bulk bool) ([]request, *rest.Problem) {
	out := make([]request, 0, len(list))
	seen := make(map[lb.Key]int, len(list))
	for i := range list {
		place := i
		if !bulk {
			place = notInList
		}
		r, p := c.posted(place, &list[i])
		if p != nil {
			return nil, p
		}
		if first, ok := seen[r.Key]; ok {
			return nil, rest.RefuseField(http.StatusBadRequest, r.at+"serviceArguments", r.Key.String(),
				fmt.Sprintf("is given twice, in lbAttr[%d] and lbAttr[%d]", first, i), "each service once")
		}
		seen[r.Key] = i
		out = append(out, r)
	}
	return out, nil
}

// notInList is the place of a service that is in no list.
const notInList = -1

// posted is request for POST and boot files, which have the contract's liberties.
func (c *codec) posted(place int, e *v1.LoadbalanceEntry) (request, *rest.Problem) {
	var notes rest.Warnings
	c.liberties(placeOf(place), &e.ServiceArguments, &notes)
	r, p := c.request(place, e)
	r.notes = notes
	return r, p
}

// placeOf is a prefix for the names of properties of an entry.
func placeOf(place int) string {
	if place == notInList {
		return ""
	}
	return "lbAttr[" + strconv.Itoa(place) + "]."
}

// request turns an entry at a place of lbAttr into what it asks for.
func (c *codec) request(place int, e *v1.LoadbalanceEntry) (r request, p *rest.Problem) {
	r.at = placeOf(place)
	if r.Service, p = c.service(r.at, e); p != nil {
		return r, p
	}
	r.oper, p = operOf(r.at, &e.ServiceArguments)
	return r, p
}

// maxIdle is the longest idle timeout that the contract has, in seconds.
const maxIdle = 86400

// liberties are what the contract takes with arguments that mean nothing: it has its default
// instead.
func (c *codec) liberties(at string, a *v1.ServiceArguments, notes *rest.Warnings) {
	if a.PortMax > 0 && a.PortMax < a.Port {
		notes.Add("%sserviceArguments.portMax %d is below port %d: the service has the one port", at, a.PortMax, a.Port)
		a.PortMax = 0
	}
	if c.compat && a.InactiveTimeOut > maxIdle {
		notes.Add("%sserviceArguments.inactiveTimeOut %d is above %d seconds: it is the default of the protocol", at, a.InactiveTimeOut, maxIdle)
		a.InactiveTimeOut = 0
	}
}
