package httpapi

import (
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
	"loxilb/internal/listing"
)

// connectionBounds are those of the part of all connections that a screen shows.
func connectionBounds() listing.Bounds {
	return listing.Bounds{Limit: 100, LimitMost: 1000, OffsetMost: 1_000_000}
}

// GetConnections answers with a page of the connections that pass the filters.
func (a *API) GetConnections(w http.ResponseWriter, r *http.Request, params v1.GetConnectionsParams) {
	f, p := a.newFilter(&v1.GetConntracksParams{
		Protocol: params.Protocol, Vip: params.Vip, ServName: params.ServName, Service: params.Service, Source: params.Source, Endpoint: params.Endpoint,
		State: params.State,
	})
	var part listing.Window
	if p == nil {
		part, p = window(connectionBounds(), params.Offset, params.Limit)
	}
	if p != nil {
		p.write(w)
		return
	}
	out := v1.ConnectionList{ConnectionAttr: []v1.Connection{}}
	sought := f.sought()
	sought.Requests = !sought.All()
	_, err := a.DataPath.ConnectionsFrom(r.Context(), 0, sought, func(c lb.Connection) bool {
		if c.Reply || !f.matches(&c) {
			return true
		}
		if out.Total++; out.Total > part.Offset && len(out.ConnectionAttr) < part.Limit {
			out.ConnectionAttr = append(out.ConnectionAttr, v1.Connection{
				Protocol: c.Protocol.String(), Client: c.Src.String(), Vip: c.Dst.String(), Endpoint: c.Endpoint.String(), State: c.State, ServName: c.Service,
				PacketsIn: c.Traffic.Packets, BytesIn: c.Traffic.Bytes,
			})
		}
		return !params.Uncounted || len(out.ConnectionAttr) < part.Limit
	})
	if err != nil {
		refuse(http.StatusServiceUnavailable, "the connections can't be read: %v", err).write(w)
		return
	}
	writeJSON(w, out)
}
