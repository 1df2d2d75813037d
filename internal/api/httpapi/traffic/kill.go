package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb"
)

const (
	// endWork bounds how long a request ends connections: less than the 10 s that loxicmd waits
	// for an answer.
	endWork = 4 * time.Second
	// EndRate is the default number of connections ended per second.
	EndRate = 1000
)

// EndConntracks ends the connections that pass the filters.
func (a *API) EndConntracks(w http.ResponseWriter, r *http.Request, params v1.EndConntracksParams) {
	if p := rest.RefuseUnknownParameters(r, params); p != nil {
		p.Write(w)
		return
	}
	chosen := v1.GetConntracksParams{
		Protocol: params.Protocol, Vip: params.Vip, ServName: params.ServName, Service: params.Service, State: params.State,
		Source: params.Source, Endpoint: params.Endpoint,
	}
	f, p := a.newFilter(&chosen)
	switch {
	case p != nil:
	case (chosen == v1.GetConntracksParams{}) && !params.All:
		p = rest.Refuse(http.StatusBadRequest, "which connections? Give a filter, or all=true")
	case params.From < 0:
		p = rest.RefuseField(http.StatusBadRequest, "from", strconv.Itoa(params.From), "is negative", "0 or more")
	case params.Rate < 0 || params.Rate > lb.MaxEndRate:
		p = rest.RefuseField(http.StatusBadRequest, "rate", strconv.Itoa(params.Rate), "is out of range", fmt.Sprintf("1 to %d, or 0 for %d", lb.MaxEndRate, EndRate))
	}
	if p != nil {
		p.Write(w)
		return
	}
	if params.Rate == 0 {
		params.Rate = EndRate
	}
	ctx, cancel := context.WithTimeout(r.Context(), endWork)
	defer cancel()
	done, err := a.DataPath.EndConnections(ctx, params.From, params.Rate, f.matches)
	more := errors.Is(err, context.DeadlineExceeded)
	if err != nil && !more {
		rest.Refuse(http.StatusServiceUnavailable, "connections can't be ended: %v", err).Write(w)
		return
	}
	rest.JSON(w, v1.ConntracksEnded{Told: done.Reset, Silent: done.Silent, More: more, Next: done.Next})
}
