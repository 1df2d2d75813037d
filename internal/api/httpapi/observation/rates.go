package observation

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/listing"
	"loxilb/internal/diagnose/rates"
	"loxilb/internal/lb"
)

// Sampler samples the rates.
type Sampler interface {
	Now() (rates.Totals, rates.Window)
	Service(key lb.Key) rates.Load
	// Endpoints returns the loads of the endpoints of a service with this many endpoints.
	Endpoints(key lb.Key, endpoints int) []rates.Load
	History() rates.History
	// ServiceHistory returns false if the service has none.
	ServiceHistory(key lb.Key) (rates.Series, bool)
	// Watch makes the sampler read more often until end is called.
	Watch() (end func())
	// Wait waits for a later window.
	Wait(ctx context.Context, seen rates.Window) error
}

// GetRates replies with the rates of all services together.
func (a *API) GetRates(w http.ResponseWriter, _ *http.Request) {
	t, window := a.Sampler.Now()
	rest.JSON(w, a.total(&t, window))
}

// inOneWindow repeats read until no window ends during it, so all values belong to the same window.
// If windows are shorter than read, it uses the last attempt.
func (a *API) inOneWindow(read func(rates.Totals, rates.Window)) {
	const tries = 3
	for range tries {
		t, window := a.Sampler.Now()
		read(t, window)
		if _, now := a.Sampler.Now(); now == window {
			return
		}
	}
}

func (a *API) total(t *rates.Totals, window rates.Window) v1.TotalRates {
	now := a.Store.Snapshot()
	out := v1.TotalRates{
		Time: window.End, Seconds: window.Length.Seconds(), Rates: ratesOf(&t.Rates), Drops: dropRates(t.Drops), Dropped: t.Dropped, Challenges: t.Challenged, RefusedRate: t.Refused,
		Connections: t.Tracked, ConnectionsMax: t.Limit, HalfOpen: t.HalfOpen,
		Services: a.Store.Services.Len(now), Endpoints: a.Store.Services.Endpoints(now),
	}
	out.Handshakes = rest.Handshakes(t.Times)
	health := a.Health.EndpointCount()
	out.EndpointsUp, out.EndpointsDown = health.Up, health.Down
	return out
}

func dropRates(all map[string]rates.Drop) []v1.DropRate {
	out := []v1.DropRate{}
	for reason, d := range all {
		if d.Packets > 0 {
			out = append(out, v1.DropRate{Reason: reason, Rate: d.Rate, Packets: d.Packets})
		}
	}
	slices.SortFunc(out, func(a, b v1.DropRate) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

func ratesOf(r *rates.Rates) v1.Rates {
	return v1.Rates{
		Connections: r[rates.Connections], PacketsIn: r[rates.PacketsIn], PacketsOut: r[rates.PacketsOut], BytesIn: r[rates.BytesIn], BytesOut: r[rates.BytesOut],
		RepeatedSyns: r[rates.RepeatedSYNs], FailedHandshakes: r[rates.FailedHandshakes],
	}
}

// Limits of the services, and of services with their endpoints, in one update of a stream: many
// clients may get each update.
const (
	maxWatched              = 1000
	maxWatchedWithEndpoints = 50
)

// bound limits the size of updates. An update about a single service has all of its endpoints.
func (q *rateQuery) bound(p *v1.WatchRatesParams) *rest.Problem {
	if q.service != nil {
		return nil
	}
	most := maxWatched
	if q.endpoints {
		most = maxWatchedWithEndpoints
	}
	var err error
	if q.window, err = (listing.Bounds{Limit: most, MaxLimit: most}).Window(p.Offset, p.Limit); err != nil {
		return rest.RefuseError(http.StatusBadRequest, err)
	}
	return nil
}

// WatchRates streams the rates of each window.
func (a *API) WatchRates(w http.ResponseWriter, r *http.Request, params v1.WatchRatesParams) {
	q, no := a.newRateQuery(v1.GetServiceRatesParams(params))
	if no == nil {
		no = q.bound(&params)
	}
	if no != nil {
		no.Write(w)
		return
	}
	a.Streams.Follow(w, r, func(ctx context.Context, s *rest.EventStream) {
		defer a.Sampler.Watch()()
		for s.Err() == nil {
			var update v1.RatesUpdate
			var window rates.Window
			a.inOneWindow(func(t rates.Totals, of rates.Window) {
				window = of
				update = v1.RatesUpdate{Total: a.total(&t, of), List: a.list(q, of)}
			})
			s.Event("rates", update)
			s.Flush()
			a.wait(ctx, s, window)
			if ctx.Err() != nil {
				return
			}
		}
	})
}

// wait waits for the next window.
func (a *API) wait(ctx context.Context, s *rest.EventStream, window rates.Window) {
	for ctx.Err() == nil && s.Err() == nil {
		beat, cancel := context.WithTimeout(ctx, rest.Heartbeat)
		err := a.Sampler.Wait(beat, window)
		cancel()
		if err == nil {
			return
		}
		s.Comment("no new rates")
		s.Flush()
	}
}

// GetRatesHistory replies with the rates of the last hour.
func (a *API) GetRatesHistory(w http.ResponseWriter, _ *http.Request, params v1.GetRatesHistoryParams) {
	if params.Service == "" {
		h := a.Sampler.History()
		rest.JSON(w, historyOf(&h.Series, true, h.Drops, "connectionsActive", "halfOpen", "dropped", "challenges", "refused"))
		return
	}
	key, no := a.service(params.Service)
	if no != nil {
		no.Write(w)
		return
	}
	series, kept := a.Sampler.ServiceHistory(key)
	rest.JSON(w, historyOf(&series, kept, nil, "connectionsActive", "refused"))
}

func historyOf(s *rates.Series, kept bool, drops map[string][]float32, more ...string) v1.RatesHistory {
	out := v1.RatesHistory{Start: s.Start, Step: s.Step.Seconds(), Kept: kept, Series: map[string][]float32{}, Drops: drops}
	names := append([]string{"connections", "packetsIn", "packetsOut", "bytesIn", "bytesOut", "repeatedSyns", "failedHandshakes"}, more...)
	for i, name := range names {
		out.Series[name] = s.Values[i]
	}
	out.Series["handshakeMedian"], out.Series["handshake99"] = s.Median, s.P99
	return out
}

// service returns the service with a key.
func (a *API) service(word string) (lb.Key, *rest.Problem) {
	key, err := lb.ParseKey(word)
	if err != nil {
		return key, rest.Invalid("service", word, "is not the key of a service", "IP:PORT/PROTOCOL, with IPv6 in brackets, as in 20.20.20.1:2020/tcp")
	}
	if _, ok := a.Store.Services.Get(a.Store.Snapshot(), key); !ok {
		return key, rest.Missing("service", key.String(), "the key of a service, as loxicmd get lb lists them")
	}
	return key, nil
}
