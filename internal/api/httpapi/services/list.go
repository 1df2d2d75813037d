package services

import (
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/listing"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// GetLoadbalancers replies with all services, or the requested ones.
func (a *API) GetLoadbalancers(w http.ResponseWriter, r *http.Request, params v1.GetLoadbalancersParams) {
	q, p := rest.ParseQuery(ServiceFields(), params.Name, params.Selector, params.SortBy, params.Limit, params.Continue)
	if p != nil {
		p.Write(w)
		return
	}
	now := a.Store.Snapshot()
	drains := servicestate.DrainsOf(a.Store.Drains.All(now))
	answer := func(s *lb.Service) *v1.LoadbalanceEntry { return a.entryIn(now, s, drains) }
	list := listing.List[*lb.Service]{
		Rows: a.servicesNamed(now, q.Names),
		Key:  func(s *lb.Service) string { return s.Key.String() },
		Order: func(a, b string) int {
			x, _ := lb.ParseKey(a)
			y, _ := lb.ParseKey(b)
			return x.Compare(y)
		},
		OtherNames: (*lb.Service).OtherNames,
		Values: func(s *lb.Service, path string) []string {
			switch path {
			case "serviceArguments.name":
				return []string{s.Name}
			case "serviceArguments.externalIP":
				return []string{s.VIP.String()}
			case "serviceArguments.port":
				return []string{strconv.Itoa(int(s.Port))}
			case "status.state":
				applied := a.Objects.AppliedStatus(now, s.Key)
				return []string{string(applied.State())}
			case "status.key":
				return []string{s.Key.String()}
			}
			if value, ok := PlainValue(s, path); ok {
				return value
			}
			return ServiceFields().Values(answer(s), path)
		},
	}
	rest.WritePage(w, r, "lbAttr", &list, q, func(s *lb.Service) any { return answer(s) })
}

// PlainFields are the fields of a service whose answer is the stored value, by path.
var PlainFields = sync.OnceValue(func() map[string]lb.Field[lb.Service] {
	m := map[string]lb.Field[lb.Service]{}
	for _, f := range slices.Concat(lb.KeyFields(), lb.Fields()) {
		if strings.HasPrefix(f.Property, "serviceArguments.") && !f.IsList() {
			m[f.Property] = f
		}
	}
	return m
})

// PlainValue returns a property of a service without encoding the whole service.
func PlainValue(s *lb.Service, path string) ([]string, bool) {
	if name, ok := strings.CutPrefix(path, "endpoints."); ok {
		return plainEndpoints(s, name)
	}
	f, ok := PlainFields()[path]
	if !ok {
		return nil, false
	}
	if f.IsDefault(s) {
		return nil, true
	}
	return []string{fmt.Sprint(f.Value(s))}, true
}

// plainEndpoints returns a property of each endpoint without encoding it.
func plainEndpoints(s *lb.Service, name string) (values []string, ok bool) {
	for _, f := range lb.EndpointFields() {
		if f.Property != name {
			continue
		}
		for i := range s.Endpoints {
			values = append(values, fmt.Sprint(f.Value(&s.Endpoints[i])))
		}
		return values, true
	}
	return nil, false
}

// servicesNamed returns the services that any of these names may select, in the order of keys;
// without names, all.
func (a *API) servicesNamed(now *store.Snapshot, names []string) iter.Seq[*lb.Service] {
	if len(names) == 0 {
		return a.Store.Services.EachShared(now)
	}
	var found []*lb.Service
	for _, name := range names {
		named := a.Store.Services.ByName(now, name)
		if vip, ok := lb.AddressOf(name); ok {
			named = append(named, a.Store.Services.OfVIP(now, vip)...)
		}
		for _, s := range named {
			found = append(found, &s)
		}
		if key, err := lb.ParseKey(name); err == nil {
			if s, ok := a.Store.Services.Get(now, key); ok {
				found = append(found, &s)
			}
		}
	}
	slices.SortFunc(found, func(a, b *lb.Service) int { return a.Key.Compare(b.Key) })
	return slices.Values(slices.CompactFunc(found, func(a, b *lb.Service) bool { return a.Key == b.Key }))
}

// ServiceFields are the properties by which services can be selected and sorted. They have the same
// names as loxicmd's flags.
var ServiceFields = sync.OnceValue(func() *listing.Fields {
	return listing.FieldsOf[v1.LoadbalanceEntry](map[string]string{"state": "status.state", "vip": "serviceArguments.externalIP"})
})

// Entry returns a service of a snapshot, with its counters.
func (a *API) Entry(now *store.Snapshot, s *lb.Service) *v1.LoadbalanceEntry {
	return a.entryIn(now, s, servicestate.DrainsOf(a.Store.Drains.All(now)))
}

func (a *API) entryIn(now *store.Snapshot, s *lb.Service, drains servicestate.Drains) *v1.LoadbalanceEntry {
	stats, _ := a.DataPath.ServiceStats(s.Key)
	endpoints := servicestate.Gather(s, &stats, drains, a.Health)
	states := servicestate.Of(endpoints, servicestate.SyncOf(a.Objects.AppliedStatus(now, s.Key)))
	e := a.codec.answer(s, &stats, endpoints, &states)
	e.Status = a.Objects.ServiceStatus(now, s.Key)
	return e
}

// counter is packets and bytes of both directions.
func counter(t report.EndpointStats) string {
	return strconv.FormatUint(t.In.Packets+t.Out.Packets, 10) + ":" + strconv.FormatUint(t.In.Bytes+t.Out.Bytes, 10)
}
