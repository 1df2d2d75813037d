package observation

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/listing"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/diagnose/rates"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// rateQuery selects services, their order and the returned properties.
type rateQuery struct {
	service             *lb.Key // nil: any
	match               string
	order               rateOrder
	window              listing.Window
	endpoints, counters bool
}

// rateOrder is an order of services.
type rateOrder struct {
	word   string
	value  func(l *rates.Load, down int) float32 // largest first; nil: by key, or name
	byName bool
}

func rateOrders() []rateOrder {
	of := func(q rates.Quantity) func(*rates.Load, int) float32 {
		return func(l *rates.Load, _ int) float32 { return l.Rates[q] }
	}
	return []rateOrder{
		{word: "key"}, {word: "name", byName: true},
		{word: "connections", value: of(rates.Connections)},
		{word: "packets", value: func(l *rates.Load, _ int) float32 { return l.Packets() }},
		{word: "bytes", value: func(l *rates.Load, _ int) float32 { return l.Bytes() }},
		{word: "packetsIn", value: of(rates.PacketsIn)}, {word: "packetsOut", value: of(rates.PacketsOut)},
		{word: "bytesIn", value: of(rates.BytesIn)}, {word: "bytesOut", value: of(rates.BytesOut)},
		{word: "repeatedSyns", value: of(rates.RepeatedSYNs)}, {word: "failedHandshakes", value: of(rates.FailedHandshakes)},
		{word: "active", value: func(l *rates.Load, _ int) float32 { return float32(l.Active) }},
		{word: "down", value: func(_ *rates.Load, down int) float32 { return float32(down) }},
	}
}

// rateOrderOf returns the order with a name; the default is by key.
func rateOrderOf(word string) (rateOrder, *rest.Problem) {
	var words []string
	for _, o := range rateOrders() {
		if o.word == cmp.Or(word, "key") {
			return o, nil
		}
		words = append(words, o.word)
	}
	return rateOrder{}, rest.Invalid("sort", word, "is not known", strings.Join(words, ", "))
}

func (a *API) newRateQuery(p v1.GetServiceRatesParams) (q rateQuery, no *rest.Problem) {
	q = rateQuery{match: strings.ToLower(p.Match), endpoints: p.Endpoints, counters: p.Counters}
	var err error
	if q.window, err = (listing.Bounds{}).Window(p.Offset, p.Limit); err != nil {
		return q, rest.RefuseError(http.StatusBadRequest, err)
	}
	if q.order, no = rateOrderOf(p.Sort); no != nil {
		return q, no
	}
	if p.Service != "" {
		var key lb.Key
		if key, no = a.service(p.Service); no != nil {
			return q, no
		}
		q.service = &key
	}
	return q, nil
}

// rateRow is a service before the list is sorted and cut. There may be many, so it holds only what
// sorting needs.
type rateRow struct {
	key   lb.Key
	name  string
	load  rates.Load
	value float32 // sort key, largest first
	place int     // index among all services, by key
}

// maxLargeAnswers bounds concurrent large answers. With 10,000 services of 10 endpoints, a response
// takes 20 MB until its client has read it.
const maxLargeAnswers = 4

// isLarge reports whether a response may be large.
func (q *rateQuery) isLarge() bool {
	const few = 100
	return q.service == nil && (q.window.Limit == 0 || q.window.Limit > few)
}

// errTooManyLarge is the refusal of a further large response.
var errTooManyLarge = fmt.Errorf("%d large responses of this kind are being read, which is the limit: try again later, or set limit", maxLargeAnswers)

// GetServiceRates replies with the rates of services.
func (a *API) GetServiceRates(w http.ResponseWriter, _ *http.Request, params v1.GetServiceRatesParams) {
	q, no := a.newRateQuery(params)
	if no != nil {
		no.Write(w)
		return
	}
	if q.isLarge() {
		select {
		case a.largeAnswers <- struct{}{}:
			defer func() { <-a.largeAnswers }()
		default:
			w.Header().Set("Retry-After", "1")
			rest.RefuseError(http.StatusServiceUnavailable, errTooManyLarge).Write(w)
			return
		}
	}
	var list v1.ServiceRatesList
	a.inOneWindow(func(_ rates.Totals, window rates.Window) { list = a.list(q, window) })
	rest.JSON(w, list)
}

// list returns the requested services, each with its rates in the last window.
func (a *API) list(q rateQuery, window rates.Window) v1.ServiceRatesList {
	found := a.find(&q)
	out := v1.ServiceRatesList{Time: window.End, Seconds: window.Length.Seconds(), Matched: len(found)}
	if q.service == nil {
		found = listing.Cut(found, q.window)
	}
	out.Services = make([]v1.ServiceRates, 0, len(found))
	now := a.Store.Snapshot()
	drains := servicestate.DrainsOf(a.Store.Drains.All(now))
	stats := a.stats(found)
	for i, r := range found {
		if s, _ := a.Store.Services.Shared(now, r.key); s != nil {
			endpoints := servicestate.Gather(s, &stats[i], drains, a.Health)
			states := servicestate.Of(endpoints, a.Sync(now, r.key))
			out.Services = append(out.Services, a.answer(s, &r.load, &stats[i], &states, &q))
		}
	}
	return out
}

// stats returns the counts of services.
func (a *API) stats(of []*rateRow) []report.ServiceStats {
	out := make([]report.ServiceStats, len(of))
	keys := make([]lb.Key, len(of))
	for i, r := range of {
		keys[i] = r.key
	}
	a.DataPath.EachServiceStats(keys, func(place int, s *report.ServiceStats) { out[place] = *s })
	return out
}

// find returns the requested services in order.
func (a *API) find(q *rateQuery) (found []*rateRow) {
	now := a.Store.Snapshot()
	drains := servicestate.DrainsOf(a.Store.Drains.All(now))
	add := func(s *lb.Service) {
		r := &rateRow{key: s.Key, name: s.Name, load: a.Sampler.Service(s.Key), place: len(found)}
		if q.order.value != nil {
			down := 0
			if q.order.word == "down" {
				down = a.down(s, drains)
			}
			r.value = q.order.value(&r.load, down)
		}
		found = append(found, r)
	}
	if q.service != nil {
		if s, ok := a.Store.Services.Get(now, *q.service); ok {
			add(&s)
		}
		return found
	}
	for s := range a.Store.Services.EachShared(now) {
		if q.match == "" || strings.Contains(strings.ToLower(s.Name), q.match) || strings.Contains(s.Key.String(), q.match) {
			add(s)
		}
	}
	switch {
	case q.order.byName:
		slices.SortFunc(found, func(a, b *rateRow) int { return cmp.Or(strings.Compare(a.name, b.name), a.place-b.place) })
	case q.order.value != nil:
		slices.SortFunc(found, func(a, b *rateRow) int { return cmp.Or(cmp.Compare(b.value, a.value), a.place-b.place) })
	}
	return found
}

// down returns the number of endpoints that are down. It does not read the data path's counters.
func (a *API) down(s *lb.Service, drains servicestate.Drains) int {
	states := servicestate.Of(servicestate.Gather(s, &report.ServiceStats{}, drains, a.Health), servicestate.SyncApplied)
	return states.Down
}

func (a *API) answer(s *lb.Service, load *rates.Load, stats *report.ServiceStats, states *servicestate.Service, q *rateQuery) v1.ServiceRates {
	out := v1.ServiceRates{
		Service: s.Key.String(), Name: s.Name, Selection: s.Algorithm.String(), EndpointCount: len(s.Endpoints), Active: load.Active, Inactive: stats.Inactive, Refused: stats.Refusals.Sum(), RefusedRate: load.Refused, Rates: ratesOf(&load.Rates),
		State: string(states.State), EndpointsUp: states.Serving, EndpointsDown: states.Down, EndpointsDrained: states.Drained,
	}
	out.Handshakes = rest.Handshakes(load.Now)
	if q.counters {
		out.Counters = countersOf(&stats.EndpointStats)
	}
	if q.endpoints {
		out.Endpoints = a.endpoints(s, stats, states, q)
	}
	return out
}

// endpoints returns the endpoints of a service. If only one service is requested, they are sorted
// and paged.
func (a *API) endpoints(s *lb.Service, stats *report.ServiceStats, states *servicestate.Service, q *rateQuery) []v1.EndpointRates {
	loads := a.Sampler.Endpoints(s.Key, len(s.Endpoints))
	places := make([]int, len(s.Endpoints))
	for i := range places {
		places[i] = i
	}
	if q.service != nil {
		if q.order.value != nil {
			value := func(i int) float32 {
				down := 0
				if states.Endpoints[i] == servicestate.Down || states.Endpoints[i] == servicestate.Panic {
					down = 1
				}
				return q.order.value(&loads[i], down)
			}
			slices.SortStableFunc(places, func(a, b int) int { return cmp.Compare(value(b), value(a)) })
		}
		places = listing.Cut(places, q.window)
	}
	out := make([]v1.EndpointRates, 0, len(places))
	for _, i := range places {
		e := s.Endpoints[i]
		one := v1.EndpointRates{
			Endpoint: e.AddrPort().String(), Weight: int(e.Weight), State: string(states.Endpoints[i]), Active: loads[i].Active, Rates: ratesOf(&loads[i].Rates),
		}
		var counted report.EndpointStats
		if i < len(stats.Endpoints) { // the store may be ahead of the data path
			counted = stats.Endpoints[i]
		}
		one.Inactive, one.Refused = counted.Inactive, counted.Refusals.Sum()
		if q.counters {
			one.Counters = countersOf(&counted)
		}
		out = append(out, one)
	}
	return out
}

func countersOf(s *report.EndpointStats) *v1.Counters {
	return &v1.Counters{
		Connections: s.Connections, PacketsIn: s.In.Packets, PacketsOut: s.Out.Packets, BytesIn: s.In.Bytes, BytesOut: s.Out.Bytes,
		RepeatedSyns: s.Handshakes.Repeated, FailedHandshakes: s.Handshakes.Failed(), Unanswered: s.Handshakes.Unanswered(),
		Attempts: s.Attempts(), RefusedPackets: s.Refusals.Sum(), Refused: s.Refusals.Sum(), RefusedBy: rest.RefusedBy(&s.Refusals),
		Active: s.Active, Inactive: s.Inactive,
	}
}
