package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/internal/config"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/diagnose/rates"
	"loxilb/internal/lb"
	"loxilb/internal/lb/netobj"
)

var errDataPath = errors.New("no memory left in the kernel")

// noCounters is a data path that a sampler never reads.
type noCounters struct{ rates.Source }

func (noCounters) Jiffy() time.Duration { return time.Millisecond }

// fake is a data path that holds what a test says.
type fake struct {
	*status.Table
	stats       map[lb.Key]lb.ServiceStats
	hits        map[string]lb.Traffic // of firewall rules
	sessions    []lb.Session          // that rules must not cut
	sessionsErr error
	asking      func()       // called when somebody asks for sessions
	asked       atomic.Int32 // how often
	connections []lb.Connection
	sought      lb.Sought // by the last request for them
	applyErr    error
	meanwhile   func() // is called by Wait
	wait        bool   // until the table has it
	connErr     error
	events      []lb.ConnectionEvent // all at once, and then nothing
	untold      lb.Untold
	watchErr    error
	watchLasts  bool // until its context ends
	watchRate   int  // that was asked for
	endRate     int  // likewise
	health      []*lb.EndpointHealth
	built       int      // of health, for answers
	said        []string // by SetHostState
	drops       map[string]uint64
	policed     lb.PolicerStats
	mirrored    lb.MirrorStats
}

// EndpointVerdict returns that of the first with the endpoint's address and port.
func (f *fake) EndpointVerdict(s *lb.Service, e lb.Endpoint) (v lb.Verdict) {
	for _, h := range f.health {
		if s.Monitored() && h.Addr == e.Addr && h.Probe.Port == e.Port {
			return lb.Verdict{Probe: h.State}
		}
	}
	return v
}

func (f *fake) EndpointHealth(s *lb.Service, e lb.Endpoint) (lb.EndpointHealth, bool) {
	for _, h := range f.health {
		if s.Monitored() && h.Addr == e.Addr && h.Probe.Port == e.Port {
			return *h, true
		}
	}
	return lb.EndpointHealth{}, false
}

func (f *fake) EndpointsWhere(chosen func(string, netip.Addr) bool, yield func(*lb.EndpointHealth) bool) {
	for _, h := range f.health {
		if !chosen(h.Key(), h.Addr) {
			continue
		}
		if f.built++; !yield(h) {
			return
		}
	}
}

func (f *fake) EndpointsNamed(names []string, yield func(*lb.EndpointHealth) bool) {
	f.EndpointsWhere(func(name string, at netip.Addr) bool {
		return slices.Contains(names, name) || slices.Contains(names, at.String())
	}, yield)
}

func (f *fake) EndpointCount() (count lb.HealthCount) {
	for _, h := range f.health {
		count.Add(h)
	}
	return count
}

func (f *fake) SetHostState(a netip.Addr, port uint16, t lb.ProbeType, out bool) (found int) {
	f.said = append(f.said, fmt.Sprint(a, " ", port, " ", t, " ", out))
	for _, h := range f.health {
		if h.Addr == a {
			found++
		}
	}
	return found
}

func (f *fake) Occupancy() (connections, limit uint64) { return uint64(len(f.connections)), 1000 }

func (f *fake) Drops() map[string]uint64 { return f.drops }

func (f *fake) ServiceStats(k lb.Key) (lb.ServiceStats, bool) {
	s, ok := f.stats[k]
	return s, ok
}

func (f *fake) EachServiceStats(keys []lb.Key, yield func(int, *lb.ServiceStats)) {
	for i, k := range keys {
		if s, ok := f.stats[k]; ok {
			yield(i, &s)
		}
	}
}

func (f *fake) MirrorStats(string) lb.MirrorStats { return f.mirrored }

func (f *fake) PolicerStats(string) lb.PolicerStats { return f.policed }

func (f *fake) OwnSockets() (map[netip.AddrPort]uint64, error) {
	return map[netip.AddrPort]uint64{netip.MustParseAddrPort("31.31.31.1:5001"): 3, netip.MustParseAddrPort("31.31.31.2:5001"): 4}, nil
}

func (f *fake) Sessions(...netip.Addr) ([]lb.Session, error) {
	f.asked.Add(1)
	if f.asking != nil {
		f.asking()
	}
	return f.sessions, f.sessionsErr
}

func (f *fake) RuleHits(r *lb.Rule) (lb.Traffic, bool) {
	t, ok := f.hits[r.Key()]
	return t, ok
}

func (f *fake) Connections(_ context.Context, yield func(lb.Connection) bool) error {
	for _, c := range f.connections {
		if !yield(c) {
			return nil
		}
	}
	return f.connErr
}

// ConnectionsFrom has the index of a connection for a place.
func (f *fake) ConnectionsFrom(_ context.Context, from int, sought lb.Sought, yield func(lb.Connection) bool) (next int, err error) {
	f.sought = sought
	for i := from; i < len(f.connections); i++ {
		if !yield(f.connections[i]) {
			return i, nil
		}
	}
	return 0, f.connErr
}

// EndConnections ends what matches; the next call, from there on, is for the others when there are
// more than two.
func (f *fake) EndConnections(_ context.Context, from, rate int, matches func(*lb.Connection) bool) (done lb.Ended, err error) {
	f.endRate = rate
	f.connections = slices.DeleteFunc(f.connections, func(c lb.Connection) bool {
		if c.Reply || !matches(&c) {
			return false
		}
		if done.Told+done.Silent == 2 {
			err, done.Next = context.DeadlineExceeded, from+1
			return false
		}
		if c.Protocol == lb.TCP {
			done.Told++
		} else {
			done.Silent++
		}
		return true
	})
	return done, errors.Join(err, f.connErr)
}

func (f *fake) WatchConnections(ctx context.Context, rate int, yield func([]lb.ConnectionEvent, lb.Untold) bool) error {
	if !f.watchLasts { // several at once
		f.watchRate = rate
	}
	if f.watchErr == nil {
		yield(f.events, f.untold)
	}
	if f.watchLasts {
		<-ctx.Done()
	}
	return f.watchErr
}

func (f *fake) TracePackets(_ context.Context, _ lb.TraceFilter, yield func([]lb.PacketTrace, lb.Untold) bool) error {
	if f.watchErr == nil {
		yield(nil, lb.Untold{})
	}
	return f.watchErr
}

func (f *fake) Wait(ctx context.Context, version uint64, ids []status.ID) error {
	if f.wait {
		return f.Table.Wait(ctx, version, ids)
	}
	if f.meanwhile != nil {
		f.meanwhile()
	}
	return f.applyErr
}

// bench is an API over a store in memory and a fake data path.
type bench struct {
	t     testing.TB
	api   *API
	fake  *fake
	store *desired.State
	http  http.Handler
	peer  transport.PeerFunc // whose requests call makes
}

func newBench(t testing.TB, change func(*Options)) *bench {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	st, err := desired.Open("", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &fake{Table: status.NewTable(), stats: map[lb.Key]lb.ServiceStats{}}
	level, err := config.NewLogLevel("info")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Network: &netobj.Network{},
		Access:  access.Open(t.TempDir()),
		Store:   st, Statuses: f, DataPath: f, Health: f, Sampler: rates.New(noCounters{}, log), Interfaces: func() map[int]string { return nil }, Log: log,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics\n") }),
		Version: v1.Version{Version: "1.2.3", BuildInfo: "test"}, LogLevel: level,
	}
	if change != nil {
		change(&o)
	}
	a := New(o)
	return &bench{t: t, api: a, fake: f, store: st, http: a.Handler(), peer: func() (uint32, error) { return 0, nil }}
}

// call makes a request as a client on this machine does.
func (b *bench) call(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1:11111"+path, strings.NewReader(body))
	r = r.WithContext(transport.WithPeer(r.Context(), b.peer))
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	w := httptest.NewRecorder()
	b.http.ServeHTTP(w, r)
	return w
}

func (b *bench) post(body string) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.call("POST", BaseURL+"/config/loadbalancer", body, "Content-Type", "application/json")
}

func (b *bench) mustPost(body string) {
	b.t.Helper()
	if w := b.post(body); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"result":"Success"}` {
		b.t.Fatalf("POST %s: %d %s", body, w.Code, w.Body)
	}
}

func (b *bench) list() []v1.LoadbalanceEntry {
	b.t.Helper()
	w := b.call("GET", BaseURL+"/config/loadbalancer/all", "")
	var list v1.LoadbalanceList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 {
		b.t.Fatalf("GET: %d %v %s", w.Code, err, w.Body)
	}
	return list.LbAttr
}

func problemOf(t testing.TB, w *httptest.ResponseRecorder) v1.Error {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
	dec.DisallowUnknownFields()
	var e v1.Error
	if err := dec.Decode(&e); err != nil {
		t.Fatalf("not an error in JSON: %v: %s", err, w.Body)
	}
	if e.Code != w.Code || e.Message == "" || e.Result == "" {
		t.Errorf("status %d with %+v", w.Code, e)
	}
	if ct := w.Header().Get("Content-Type"); ct != "application/json" {
		t.Errorf("Content-Type %q", ct)
	}
	return e
}

// demo is the service of the README.
const demo = `{"serviceArguments":{"externalIP":"20.20.20.1","port":2020,"protocol":"tcp"},
 "endpoints":[{"endpointIP":"31.31.31.1","targetPort":5001,"weight":1},{"endpointIP":"32.32.32.1","targetPort":5001,"weight":1}]}`

func demoKey() lb.Key {
	return lb.Key{VIP: netip.MustParseAddr("20.20.20.1"), Port: 2020, Protocol: lb.TCP}
}
