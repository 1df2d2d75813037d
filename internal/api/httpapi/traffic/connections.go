package traffic

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/listing"
	"loxilb/internal/lb/report"
)

// connectionBounds are the limits of a page.
func connectionBounds() listing.Bounds {
	return listing.Bounds{Limit: 100, MaxLimit: 1000, MaxOffset: 1_000_000}
}

// GetConnections replies with a page of the connections that pass the filters.
func (a *API) GetConnections(w http.ResponseWriter, r *http.Request, params v1.GetConnectionsParams) {
	f, p := a.newFilter(&v1.GetConntracksParams{
		Protocol: params.Protocol, Vip: params.Vip, ServName: params.ServName, Service: params.Service, Source: params.Source, Endpoint: params.Endpoint,
		State: params.State,
	})
	var part listing.Window
	if p == nil {
		part, p = rest.Window(connectionBounds(), params.Offset, params.Limit)
	}
	if p != nil {
		p.Write(w)
		return
	}
	order, p := connectionOrder(params.Sort)
	if p != nil {
		p.Write(w)
		return
	}
	query := f.query()
	query.Requests = !query.All()
	list := listing.SortedPart[report.Connection]{Window: part, Order: order, Max: maxSorted}
	walk := func() error {
		_, err := a.DataPath.ConnectionsFrom(r.Context(), 0, query, func(c report.Connection) bool {
			if !c.Reply && f.matches(&c) {
				list.Add(&c)
			}
			return !params.Uncounted || !list.IsComplete()
		})
		return err
	}
	if order != nil && !a.walkAll(w, r, walk) || order == nil && !replyError(w, walk()) {
		return
	}
	out := v1.ConnectionList{Total: list.Total, ConnectionAttr: []v1.Connection{}}
	for _, c := range list.Rows() {
		out.ConnectionAttr = append(out.ConnectionAttr, listedConnection(&c))
	}
	rest.JSON(w, out)
}

func listedConnection(c *report.Connection) v1.Connection {
	return v1.Connection{
		Protocol: c.Protocol.String(), Client: c.Src.String(), Vip: c.Dst.String(), Endpoint: c.Endpoint.String(), State: c.State, ServName: c.Service,
		PacketsIn: c.Traffic.Packets, BytesIn: c.Traffic.Bytes, Age: c.Age.Seconds(), Idle: c.Idle.Seconds(),
	}
}

func connectionOrders() map[string]func(a, b *report.Connection) int {
	return map[string]func(a, b *report.Connection) int{
		"client":   func(a, b *report.Connection) int { return a.Src.Compare(b.Src) },
		"vip":      func(a, b *report.Connection) int { return a.Dst.Compare(b.Dst) },
		"endpoint": func(a, b *report.Connection) int { return a.Endpoint.Compare(b.Endpoint) },
		"state":    func(a, b *report.Connection) int { return cmp.Compare(a.State, b.State) },
		"age":      func(a, b *report.Connection) int { return cmp.Compare(a.Age, b.Age) },
		"idle":     func(a, b *report.Connection) int { return cmp.Compare(a.Idle, b.Idle) },
		"packets":  func(a, b *report.Connection) int { return cmp.Compare(a.Traffic.Packets, b.Traffic.Packets) },
		"bytes":    func(a, b *report.Connection) int { return cmp.Compare(a.Traffic.Bytes, b.Traffic.Bytes) },
	}
}

// connectionOrder returns the order of a name, or nil. Equal connections are in the order of their
// addresses.
func connectionOrder(word string) (order func(a, b *report.Connection) int, p *rest.Problem) {
	if word == "" {
		return nil, nil
	}
	word, down := strings.CutPrefix(word, "-")
	orders := connectionOrders()
	by := orders[word]
	if by == nil {
		allowed := strings.Join(slices.Sorted(maps.Keys(orders)), ", ")
		return nil, rest.RefuseField(http.StatusBadRequest, "sort", word, "is not a sort order", allowed+", - before it")
	}
	return func(a, b *report.Connection) int {
		first := by(a, b)
		if down {
			first = -first
		}
		return cmp.Or(first, a.Src.Compare(b.Src), a.Dst.Compare(b.Dst))
	}, nil
}
