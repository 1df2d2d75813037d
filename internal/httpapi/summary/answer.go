package summary

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// question is what is asked of the list.
type question struct {
	text          string
	states        []string // none: any
	by            string
	down          bool // the largest first
	offset, limit int
}

func parse(p *v1.GetServiceSummariesParams) (q question, refused error) {
	q = question{text: strings.ToLower(p.Search), offset: p.Offset, limit: p.Limit}
	if q.limit == 0 {
		q.limit = defaultLimit
	}
	if q.limit < 1 || q.limit > maxLimit {
		return q, lb.NewFieldError("limit", strconv.Itoa(p.Limit), "is out of range", "1 to "+strconv.Itoa(maxLimit))
	}
	if q.offset < 0 {
		return q, lb.NewFieldError("offset", strconv.Itoa(p.Offset), "is negative", "0 or more")
	}
	if q.by, q.down = strings.CutPrefix(p.Sort, "-"); q.by == "" {
		q.by = "key"
	}
	if !slices.Contains(orders(), q.by) {
		return q, lb.NewFieldError("sort", p.Sort, "is no order", strings.Join(orders(), ", ")+", - before it")
	}
	for word := range strings.SplitSeq(p.State, ",") {
		switch {
		case word == "":
		case word == "trouble":
			q.states = append(q.states, failed, down, degraded)
		case slices.Contains(states(), word):
			q.states = append(q.states, word)
		default:
			return q, lb.NewFieldError("state", word, "is no state of a service", "trouble, "+strings.Join(states(), ", "))
		}
	}
	return q, nil
}

// needsAll tells whether a page cannot be told without looking at how every service is.
func (q *question) needsAll() bool { return len(q.states) > 0 || q.by == "state" }

// byLoad tells whether the order is that of how busy services are.
func (q *question) byLoad() bool { return q.by == "connections" || q.by == "rate" || q.by == "traffic" }

// GetServiceSummaries answers with a page of services.
func (a Summary) GetServiceSummaries(w http.ResponseWriter, _ *http.Request, params v1.GetServiceSummariesParams) {
	q, refused := parse(&params)
	if refused != nil {
		refuse(w, http.StatusBadRequest, refused)
		return
	}
	now := a.at(a.store.Snapshot())
	rows := now.rows(&q)
	out := v1.ServiceSummaryList{Total: len(rows), ServiceAttr: []v1.ServiceSummary{}}
	from := min(q.offset, len(rows))
	for i := range rows[from:min(len(rows), from+q.limit)] {
		one := &rows[from+i]
		if !q.needsAll() {
			if s, _ := a.store.Services.Shared(now.now, one.key); s != nil {
				one.ServiceSummary = now.of(s)
			}
		}
		now.count(one.key, &one.ServiceSummary)
		out.ServiceAttr = append(out.ServiceAttr, one.ServiceSummary)
	}
	write(w, http.StatusOK, out)
}

// rows are the services that are found, in order; how they are is told only where that is needed.
func (a *at) rows(q *question) []row {
	rows := make([]row, 0, a.store.Services.Len(a.now))
	for s := range a.store.Services.All(a.now) {
		if !found(&s, q.text) {
			continue
		}
		one := row{key: s.Key, ServiceSummary: v1.ServiceSummary{Name: s.Name, Endpoints: len(s.Endpoints)}}
		if q.needsAll() {
			one.ServiceSummary = a.of(&s)
		}
		if len(q.states) > 0 && !slices.Contains(q.states, one.State) {
			continue
		}
		if q.byLoad() {
			one.load = a.loads.Service(one.key)
		}
		rows = append(rows, one)
	}
	slices.SortStableFunc(rows, func(x, y row) int {
		if q.down {
			x, y = y, x
		}
		return compare(q.by, &x, &y)
	})
	if q.by == "key" && q.down {
		slices.Reverse(rows)
	}
	return rows
}

// GetServiceStatus answers with one service and its endpoints.
func (a Summary) GetServiceStatus(w http.ResponseWriter, _ *http.Request, params v1.GetServiceStatusParams) {
	key, err := lb.ParseKey(params.Key)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	now := a.at(a.store.Snapshot())
	s, there := a.store.Services.Get(now.now, key)
	if !there {
		refuse(w, http.StatusNotFound, lb.NewFieldError("key", key.String(), "is no service", ""))
		return
	}
	out := v1.ServiceDetail{Service: *a.entry(now.now, &s), Summary: now.of(&s), Endpoints: []v1.EndpointStatus{}}
	stats := now.count(key, &out.Summary)
	for i := range s.Endpoints {
		var counted lb.EndpointStats
		if i < len(stats.Endpoints) {
			counted = stats.Endpoints[i]
		}
		out.Endpoints = append(out.Endpoints, now.endpoint(&s, &s.Endpoints[i], &counted))
	}
	write(w, http.StatusOK, out)
}

func (a *at) endpoint(s *lb.Service, e *lb.Endpoint, counted *lb.EndpointStats) v1.EndpointStatus {
	out := v1.EndpointStatus{
		Endpoint: e.AddrPort().String(), State: "unprobed", Weight: int(e.Weight), Backup: int(e.Backup), Standby: e.Backup > 0 && !counted.Takes, Drained: a.drained(e),
		Connections: counted.Active, Opened: counted.Connections,
		PacketsIn: counted.In.Packets, PacketsOut: counted.Out.Packets, BytesIn: counted.In.Bytes, BytesOut: counted.Out.Bytes,
	}
	if h, known := a.health.EndpointHealth(s, *e); known {
		out.State, out.Since, out.Evidence = h.State.String(), h.Since, h.Evidence
	}
	return out
}

func write(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client is gone if this fails
}

func refuse(w http.ResponseWriter, code int, why error) {
	out := v1.Error{Code: code, Message: why.Error(), Result: why.Error()}
	var field *lb.FieldError
	if errors.As(why, &field) {
		out.Field, out.Value, out.Reason, out.Allowed = field.Field, field.Value, field.Reason, field.Allowed
	}
	write(w, code, out)
}
