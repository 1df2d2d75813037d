package httpapi

import (
	"fmt"
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// entries lists what a request asks for, and tells whether it was written as a list.
func entries(req *v1.LoadbalanceRequest) (list []v1.LoadbalanceEntry, bulk bool, p *problem) {
	if req.LbAttr != nil {
		if !req.Alone() {
			return nil, true, refuse(http.StatusBadRequest, "lbAttr stands beside another property: write either one service or lbAttr alone")
		}
		return req.LbAttr, true, nil
	}
	if req.ServiceArguments == nil {
		return nil, false, refuseField(http.StatusBadRequest, "serviceArguments", "", "is missing", "the arguments of a service, or lbAttr with a list")
	}
	return []v1.LoadbalanceEntry{req.Entry()}, false, nil
}

// services turns all of a request into services. Two that share a key are refused: which of them was meant?
func (c *codec) services(list []v1.LoadbalanceEntry, bulk bool) ([]request, *problem) {
	out := make([]request, 0, len(list))
	seen := make(map[lb.Key]int, len(list))
	for i := range list {
		at := ""
		if bulk {
			at = fmt.Sprintf("lbAttr[%d].", i)
		}
		s, p := c.service(at, &list[i])
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
		out = append(out, request{s, o, at})
	}
	return out, nil
}
