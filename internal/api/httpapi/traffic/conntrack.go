package traffic

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/listing"
	"loxilb/internal/lb/report"
)

// maxSorted bounds the connections to sort: they are in memory twice.
const maxSorted = 10_000

// GetConntracks streams the connections that pass the filters.
func (a *API) GetConntracks(w http.ResponseWriter, r *http.Request, params v1.GetConntracksParams) {
	f, p := a.newFilter(&params)
	var q *listing.Query
	if p == nil {
		q, p = rest.ParseQuery(connectionFields(), "", params.Selector, params.SortBy, params.Limit, "")
	}
	var from int
	if p == nil {
		from, p = connectionPlace(&params)
	}
	var part listing.Window
	if p == nil {
		part, p = rest.Window(listing.Bounds{}, params.Offset, params.Limit)
	}
	if p != nil {
		p.Write(w)
		return
	}
	matches := func(c *report.Connection) bool {
		if !f.matches(c) {
			return false
		}
		if len(q.Where) == 0 {
			return true
		}
		e := conntrackOf(c)
		return q.Where.Matches(func(path string) []string { return connectionFields().Values(&e, path) })
	}
	out := rest.NewList(w, "ctAttr")
	if q.Sort != "" {
		a.sortedConntracks(r.Context(), w, out, q, f.query(), matches)
		return
	}
	skip := part.Offset
	next, err := a.DataPath.ConnectionsFrom(r.Context(), from, f.query(), func(c report.Connection) bool {
		switch {
		case !matches(&c):
		case skip > 0:
			skip--
		case part.Limit > 0 && out.Count == part.Limit:
			return false
		default:
			return out.Item(conntrackOf(&c))
		}
		return true
	})
	place := ""
	if next > 0 {
		place = strconv.Itoa(next)
	}
	a.endConntracks(w, out, place, err)
}

// endConntracks completes a response, or aborts it if the list was incomplete.
func (a *API) endConntracks(w http.ResponseWriter, out *rest.List, next string, err error) {
	switch {
	case out.Err != nil: // the client left
	case err != nil && out.Count == 0:
		rest.Refuse(http.StatusServiceUnavailable, "the connections can't be read: %v", err).Write(w)
	case err != nil:
		a.Log.Error("connections could not be read to the end", "error", err)
	default:
		out.EndPage(next)
	}
}

// connectionPlace returns where a page begins.
func connectionPlace(params *v1.GetConntracksParams) (from int, p *rest.Problem) {
	switch {
	case params.SortBy != "" && (params.Limit == 0 || params.Limit > maxSorted):
		return 0, rest.RefuseField(http.StatusBadRequest, "limit", strconv.Itoa(params.Limit), "is out of range for sorted connections", "1 to "+strconv.Itoa(maxSorted))
	case params.SortBy != "" && (params.Continue != "" || params.Offset > 0):
		return 0, rest.Refuse(http.StatusBadRequest, "sortBy has one page: continue and offset do not go with it")
	case params.Continue == "":
		return 0, nil
	}
	from, err := strconv.Atoi(params.Continue)
	if err != nil || from < 1 {
		return 0, rest.RefuseField(http.StatusBadRequest, "continue", params.Continue, "is not the end of a page", "the value in the previous answer")
	}
	return from, nil
}

// sortedConntracks returns the first connections by a property. Never more than twice as many are
// held.
func (a *API) sortedConntracks(ctx context.Context, w http.ResponseWriter, out *rest.List, q *listing.Query, query report.ConnectionQuery, matches func(*report.Connection) bool) {
	type row struct {
		value string
		entry v1.ConntrackEntry
	}
	field, down := strings.CutPrefix(q.Sort, "-")
	var rows []row
	trim := func() {
		slices.SortStableFunc(rows, func(a, b row) int {
			if down {
				a, b = b, a
			}
			return listing.Compare(a.value, b.value)
		})
		rows = rows[:min(len(rows), q.Limit)]
	}
	_, err := a.DataPath.ConnectionsFrom(ctx, 0, query, func(c report.Connection) bool {
		if !matches(&c) {
			return true
		}
		e := conntrackOf(&c)
		if rows = append(rows, row{strings.Join(connectionFields().Values(&e, field), ","), e}); len(rows) >= 2*q.Limit {
			trim()
		}
		return true
	})
	trim()
	for i := range rows {
		if err != nil || !out.Item(rows[i].entry) {
			break
		}
	}
	a.endConntracks(w, out, "", err)
}

// connectionFields are the fields to select and sort connections by.
var connectionFields = sync.OnceValue(func() *listing.Fields {
	return listing.FieldsOf[v1.ConntrackEntry](map[string]string{"state": "conntrackState"})
})

func conntrackOf(c *report.Connection) v1.ConntrackEntry {
	return v1.ConntrackEntry{
		DestinationIP: c.Dst.Addr().String(), DestinationPort: c.Dst.Port(),
		SourceIP: c.Src.Addr().String(), SourcePort: c.Src.Port(),
		Protocol: c.Protocol.String(), ConntrackState: c.State, ConntrackAct: action(c),
		Packets: c.Traffic.Packets, Bytes: c.Traffic.Bytes, ServName: c.Service,
	}
}

// action returns the translation of this direction's packets: dnat or snat with the new address;
// fdnat or fsnat with both, if the endpoint sees an address of the load balancer; ddsr if it
// answers the client directly. The port is the endpoint's or the service's.
func action(c *report.Connection) string {
	weight := ":w" + strconv.Itoa(int(c.Weight))
	switch {
	case c.Direct:
		return "ddsr-" + c.Endpoint.String() + weight
	case c.Reply && c.Dst != c.NewDst:
		return "fsnat-" + c.NewSrc.Addr().String() + "," + netip.AddrPortFrom(c.NewDst.Addr(), c.NewSrc.Port()).String() + weight
	case c.Reply:
		return "snat-" + c.NewSrc.String() + weight
	case c.Src != c.NewSrc:
		return "fdnat-" + c.NewSrc.Addr().String() + "," + c.Endpoint.String() + weight
	}
	return "dnat-" + c.Endpoint.String() + weight
}
