package httpapi

import (
	"net/http"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// GetConntracks streams the connections that pass the filters.
func (a *API) GetConntracks(w http.ResponseWriter, r *http.Request, params v1.GetConntracksParams) {
	f, p := a.newFilter(&params)
	if p != nil {
		p.write(w)
		return
	}
	out := newStream(w, "ctAttr")
	skip := params.Offset
	err := a.DataPath.Connections(r.Context(), func(c lb.Connection) bool {
		if !f.matches(&c) {
			return true
		}
		if skip > 0 {
			skip--
			return true
		}
		if !out.item(conntrackOf(&c)) {
			return false
		}
		return params.Limit == 0 || out.count < params.Limit
	})
	switch {
	case out.err != nil: // the client left
	case err != nil && out.count == 0:
		refuse(http.StatusServiceUnavailable, "the connections can't be read: %v", err).write(w)
	case err != nil:
		a.Log.Error("connections could not be read to the end", "error", err)
	default:
		out.end()
	}
}

func conntrackOf(c *lb.Connection) v1.ConntrackEntry {
	return v1.ConntrackEntry{
		DestinationIP: c.Dst.Addr().String(), DestinationPort: c.Dst.Port(),
		SourceIP: c.Src.Addr().String(), SourcePort: c.Src.Port(),
		Protocol: c.Protocol.String(), ConntrackState: c.State, ConntrackAct: action(c),
		Packets: c.Traffic.Packets, Bytes: c.Traffic.Bytes, ServName: c.Service,
	}
}

// action says what is done to the packets of this direction: dnat and snat, or fdnat and fsnat where the endpoint sees
// an address of the load balancer; ddsr where it answers the client directly.
func action(c *lb.Connection) string {
	weight := ":w" + strconv.Itoa(int(c.Weight))
	full := "" // both addresses are translated
	if c.Reply && c.Dst != c.NewDst || !c.Reply && c.Src != c.NewSrc {
		full = "f"
	}
	if c.Direct {
		return "ddsr-" + c.Endpoint.String() + weight
	}
	if c.Reply {
		return full + "snat-" + c.NewSrc.String() + weight
	}
	return full + "dnat-" + c.Endpoint.String() + weight
}
