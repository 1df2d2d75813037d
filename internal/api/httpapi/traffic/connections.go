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
	order, down, p := connectionOrder(params.Sort)
	if p != nil {
		p.Write(w)
		return
	}
	query := f.query()
	query.Requests = !query.All()
	list := connectionPage{window: part, order: order, down: down}
	walk := func() error {
		_, err := a.DataPath.ConnectionsFrom(r.Context(), 0, query, func(c report.Connection) bool {
			if !c.Reply && f.matches(&c) {
				list.add(&c)
			}
			return !params.Uncounted || order != nil || len(list.rows) < part.Limit
		})
		return err
	}
	if order != nil && !a.walkAll(w, r, walk) || order == nil && !replyError(w, walk()) {
		return
	}
	out := v1.ConnectionList{Total: list.total, ConnectionAttr: []v1.Connection{}}
	for _, c := range list.page() {
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

// connectionPage collects a window of connections. With an order it holds at most twice the rows up
// to the end of the window.
type connectionPage struct {
	window listing.Window
	order  func(a, b *report.Connection) int // nil: none
	down   bool
	rows   []report.Connection
	total  int
}

func (l *connectionPage) add(c *report.Connection) {
	l.total++
	if l.order == nil {
		if l.total > l.window.Offset && len(l.rows) < l.window.Limit {
			l.rows = append(l.rows, *c)
		}
		return
	}
	if l.rows = append(l.rows, *c); len(l.rows) >= 2*min(maxSorted, l.window.Offset+l.window.Limit) {
		l.trim()
	}
}

// trim keeps the first rows of the order, up to the end of the window.
func (l *connectionPage) trim() {
	slices.SortStableFunc(l.rows, func(a, b report.Connection) int {
		by := l.order(&a, &b)
		if l.down {
			by = -by
		}
		return cmp.Or(by, a.Src.Compare(b.Src), a.Dst.Compare(b.Dst))
	})
	l.rows = l.rows[:min(len(l.rows), maxSorted, l.window.Offset+l.window.Limit)]
}

// page returns the connections of the window.
func (l *connectionPage) page() []report.Connection {
	if l.order == nil {
		return l.rows
	}
	l.trim()
	return l.rows[min(l.window.Offset, len(l.rows)):]
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

// connectionOrder returns the order of a name, or nil.
func connectionOrder(word string) (order func(a, b *report.Connection) int, down bool, p *rest.Problem) {
	if word == "" {
		return nil, false, nil
	}
	word, down = strings.CutPrefix(word, "-")
	orders := connectionOrders()
	if order = orders[word]; order == nil {
		allowed := strings.Join(slices.Sorted(maps.Keys(orders)), ", ")
		return nil, false, rest.RefuseField(http.StatusBadRequest, "sort", word, "is not a sort order", allowed+", - before it")
	}
	return order, down, nil
}
