package services

import (
	"net/http"
	"slices"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/listing"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// summaryBounds are the limits of a page.
func summaryBounds() listing.Bounds { return listing.Bounds{Limit: 100, MaxLimit: 1000} }

// summaryQuery is the query for the list.
type summaryQuery struct {
	text   string
	states []servicestate.State // none: any
	by     string
	down   bool // the largest first
	window listing.Window
}

func parseSummaries(p *v1.GetServiceSummariesParams) (q summaryQuery, refused *rest.Problem) {
	q = summaryQuery{text: strings.ToLower(p.Search)}
	var err error
	if q.window, err = summaryBounds().Window(p.Offset, p.Limit); err != nil {
		return q, rest.RefuseError(http.StatusBadRequest, err)
	}
	if q.by, q.down = strings.CutPrefix(p.Sort, "-"); q.by == "" {
		q.by = "key"
	}
	if !slices.Contains(summaryOrders(), q.by) {
		return q, rest.Invalid("sort", p.Sort, "is not a sort order", strings.Join(summaryOrders(), ", ")+", - before it")
	}
	for word := range strings.SplitSeq(p.State, ",") {
		switch {
		case word == "":
		case word == "trouble":
			q.states = append(q.states, servicestate.TroubleStates()...)
		case slices.Contains(servicestate.ServiceStates(), servicestate.State(word)):
			q.states = append(q.states, servicestate.State(word))
		default:
			return q, rest.Invalid("state", word, "is not a state of a service", "trouble, "+stateWords(servicestate.ServiceStates()))
		}
	}
	return q, nil
}

func stateWords(states []servicestate.State) string {
	list := make([]string, len(states))
	for i, s := range states {
		list[i] = string(s)
	}
	return strings.Join(list, ", ")
}

// needsAll reports whether a page depends on the state of every service.
func (q *summaryQuery) needsAll() bool { return len(q.states) > 0 || q.by == "state" }

// byLoad reports whether the order is by load.
func (q *summaryQuery) byLoad() bool {
	return q.by == "connections" || q.by == "rate" || q.by == "traffic" || q.by == "latency"
}

// GetServiceSummaries replies with a page of services.
func (a *API) GetServiceSummaries(w http.ResponseWriter, _ *http.Request, params v1.GetServiceSummariesParams) {
	q, refused := parseSummaries(&params)
	if refused != nil {
		refused.Write(w)
		return
	}
	now := a.summarizer(a.Store.Snapshot())
	rows := now.rows(&q)
	out := v1.ServiceSummaryList{Total: len(rows), ServiceAttr: []v1.ServiceSummary{}}
	page := listing.Cut(rows, q.window)
	if !q.needsAll() {
		now.summarizeAll(page)
	}
	for i := range page {
		addRates(&page[i].ServiceSummary, a.Loads.Service(page[i].service.Key))
		if page[i].Down > 0 {
			page[i].Evidence = a.evidence(page[i].service)
		}
		out.ServiceAttr = append(out.ServiceAttr, page[i].ServiceSummary)
	}
	rest.JSON(w, out)
}

// evidence returns the latest evidence about the first endpoint that is down.
func (a *API) evidence(s *lb.Service) string {
	for _, e := range s.Endpoints {
		if h, known := a.Health.EndpointHealth(s, e); known && h.State == report.HealthDown {
			return e.AddrPort().String() + ": " + strings.ReplaceAll(h.Evidence, " "+e.AddrPort().String()+":", ":")
		}
	}
	return ""
}

func (a *summarizer) summarizeAll(rows []summaryRow) {
	services := make([]*lb.Service, len(rows))
	for i := range rows {
		services[i] = rows[i].service
	}
	rest.EachService(a.DataPath, services, func(place int, stats *report.ServiceStats) { rows[place].ServiceSummary = a.of(services[place], stats) })
}

// rows returns the selected services in order, with their state only if it is needed.
func (a *summarizer) rows(q *summaryQuery) []summaryRow {
	rows := make([]summaryRow, 0, a.Store.Services.Len(a.now))
	for s := range a.Store.Services.EachShared(a.now) {
		if !hasText(s, q.text) {
			continue
		}
		one := summaryRow{service: s, ServiceSummary: v1.ServiceSummary{Name: s.Name, Endpoints: len(s.Endpoints)}}
		if q.byLoad() {
			one.load = a.Loads.Service(s.Key)
		}
		rows = append(rows, one)
	}
	if q.needsAll() {
		a.summarizeAll(rows)
		rows = slices.DeleteFunc(rows, func(r summaryRow) bool {
			return len(q.states) > 0 && !slices.Contains(q.states, servicestate.State(r.State))
		})
	}
	slices.SortStableFunc(rows, func(x, y summaryRow) int {
		if q.down {
			x, y = y, x
		}
		return compareSummaries(q.by, &x, &y)
	})
	if q.by == "key" && q.down {
		slices.Reverse(rows)
	}
	return rows
}

// GetServiceStatus replies with one service and its endpoints.
func (a *API) GetServiceStatus(w http.ResponseWriter, _ *http.Request, params v1.GetServiceStatusParams) {
	key, err := lb.ParseKey(params.Key)
	if err != nil {
		rest.Invalid("key", params.Key, "is not the key of a service", "IP:PORT/PROTOCOL, with IPv6 in brackets, as in 20.20.20.1:2020/tcp").Write(w)
		return
	}
	now := a.summarizer(a.Store.Snapshot())
	s, there := a.Store.Services.Get(now.now, key)
	if !there {
		rest.Missing("key", key.String(), "the key of a service, as loxicmd get lb lists them").Write(w)
		return
	}
	out := v1.ServiceDetail{Service: *a.Entry(now.now, &s), Endpoints: []v1.EndpointStatus{}}
	stats, _ := a.DataPath.ServiceStats(key)
	var states []servicestate.State
	out.Summary, states = now.summarize(&s, &stats)
	addRates(&out.Summary, a.Loads.Service(key))
	loads := a.Loads.Endpoints(key, len(s.Endpoints))
	for i := range s.Endpoints {
		var counted report.EndpointStats
		if i < len(stats.Endpoints) {
			counted = stats.Endpoints[i]
		}
		one := now.endpoint(&s, &s.Endpoints[i], states[i], &counted)
		one.Handshakes, one.Source = rest.Handshakes(loads[i].Times), out.Service.Endpoints[i].Source
		out.Endpoints = append(out.Endpoints, one)
	}
	rest.JSON(w, out)
}

func (a *summarizer) endpoint(s *lb.Service, e *lb.Endpoint, state servicestate.State, counted *report.EndpointStats) v1.EndpointStatus {
	out := v1.EndpointStatus{
		Endpoint: e.AddrPort().String(), State: string(state), Weight: int(e.Weight), Backup: int(e.Backup),
		Standby: e.Backup > 0 && !counted.Available, Drained: a.drains.Has(e.AddrPort()),
		Connections: counted.Active, Opened: counted.Connections,
		ActiveConnections: counted.Active, InactiveConnections: counted.Inactive,
		Attempts: counted.Attempts(), Refused: counted.Refusals.Sum(), RefusedBy: rest.RefusedBy(&counted.Refusals),
		Failed: counted.Handshakes.Failed(), Unanswered: counted.Handshakes.Unanswered(),
		PacketsIn: counted.In.Packets, PacketsOut: counted.Out.Packets, BytesIn: counted.In.Bytes, BytesOut: counted.Out.Bytes,
	}
	if h, known := a.Health.EndpointHealth(s, *e); known {
		out.Since, out.Evidence, out.Checked = h.Since, h.Evidence, h.Checked
		out.ProbeTime, out.Downs, out.Downtime = h.AvgDelay.Seconds(), h.Downs, h.Downtime.Seconds()
	}
	return out
}
