// Package apitest runs the API with a store in memory, and with a fake data path and network whose
// state tests set.
package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
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
	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/internal/config"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/diagnose/rates"
	"loxilb/internal/lb"
	"loxilb/internal/lb/netobj"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// ErrDataPath is an error of the data path.
var ErrDataPath = errors.New("no memory left in the kernel")

// noCounters is a source of rates for a sampler that never runs.
type noCounters struct{ rates.Source }

func (noCounters) Jiffy() time.Duration { return time.Millisecond }

// fake is a data path. Tests set its state.
type fake struct {
	*status.Table
	Stats           map[lb.Key]report.ServiceStats
	Hits            map[string]report.Traffic   // of firewall rules
	Accepted        []policy.AcceptedConnection // result of Sessions
	SessionsErr     error                       // error of Sessions
	OnSessions      func()                      // called by Sessions
	SessionRequests atomic.Int32                // number of calls of Sessions
	Conns           []report.Connection
	Query           report.ConnectionQuery // of the last request for connections
	ApplyErr        error                  // error of Wait
	OnWait          func()                 // called by Wait
	WaitsForTable   bool                   // Wait waits for the statuses in Table
	ConnErr         error
	Events          []report.ConnectionEvent // sent at once to each watch
	Omitted         report.Omitted
	WatchErr        error
	WatchBlocks     bool          // a watch lasts until its context ends
	TraceBegins     time.Duration // traces begin after this time, and last until their context ends
	WatchRate       int           // of the last request
	EndRate         int           // of the last request
	Health          []*report.EndpointHealth
	Built           int      // number of elements of Health in answers
	HostStates      []string // arguments of SetHostState
	Dropped         map[string]uint64
	Policed         policy.PolicerStats
	Mirrored        policy.MirrorStats
}

// EndpointVerdict returns the verdict of the first endpoint with this address and port.
func (f *fake) EndpointVerdict(s *lb.Service, e lb.Endpoint) (v report.Verdict) {
	for _, h := range f.Health {
		if s.Monitored() && h.Addr == e.Addr && h.Probe.Port == e.Port {
			return report.Verdict{Probe: h.State}
		}
	}
	return v
}

func (f *fake) EndpointHealth(s *lb.Service, e lb.Endpoint) (report.EndpointHealth, bool) {
	for _, h := range f.Health {
		if s.Monitored() && h.Addr == e.Addr && h.Probe.Port == e.Port {
			return *h, true
		}
	}
	return report.EndpointHealth{}, false
}

func (f *fake) EndpointsWhere(chosen func(string, netip.Addr) bool, yield func(*report.EndpointHealth) bool) {
	for _, h := range f.Health {
		if !chosen(h.Key(), h.Addr) {
			continue
		}
		if f.Built++; !yield(h) {
			return
		}
	}
}

func (f *fake) EndpointsNamed(names []string, yield func(*report.EndpointHealth) bool) {
	f.EndpointsWhere(func(name string, at netip.Addr) bool {
		return slices.ContainsFunc(names, func(n string) bool {
			a, _ := lb.AddressOf(n)
			return n == name || a == at
		})
	}, yield)
}

func (f *fake) EndpointCount() (count report.HealthCount) {
	for _, h := range f.Health {
		count.Add(h)
	}
	return count
}

func (f *fake) SetHostState(a netip.Addr, port uint16, t lb.ProbeType, out bool) (found int) {
	f.HostStates = append(f.HostStates, fmt.Sprint(a, " ", port, " ", t, " ", out))
	for _, h := range f.Health {
		if h.Addr == a {
			found++
		}
	}
	return found
}

func (f *fake) Occupancy() (connections, limit uint64) { return uint64(len(f.Conns)), 1000 }

func (f *fake) Drops() map[string]uint64 { return f.Dropped }

func (f *fake) ServiceStats(k lb.Key) (report.ServiceStats, bool) {
	s, ok := f.Stats[k]
	return s, ok
}

func (f *fake) EachServiceStats(keys []lb.Key, yield func(int, *report.ServiceStats)) {
	for i, k := range keys {
		if s, ok := f.Stats[k]; ok {
			yield(i, &s)
		}
	}
}

func (f *fake) MirrorStats(string) policy.MirrorStats { return f.Mirrored }

func (f *fake) PolicerStats(string) policy.PolicerStats { return f.Policed }

func (f *fake) OwnSockets() (map[netip.AddrPort]uint64, error) {
	return map[netip.AddrPort]uint64{netip.MustParseAddrPort("31.31.31.1:5001"): 3, netip.MustParseAddrPort("31.31.31.2:5001"): 4}, nil
}

func (f *fake) AcceptedConnections(...netip.Addr) ([]policy.AcceptedConnection, error) {
	f.SessionRequests.Add(1)
	if f.OnSessions != nil {
		f.OnSessions()
	}
	return f.Accepted, f.SessionsErr
}

func (f *fake) RuleHits(r *policy.Rule) (report.Traffic, bool) {
	t, ok := f.Hits[r.Key()]
	return t, ok
}

func (f *fake) Connections(_ context.Context, yield func(report.Connection) bool) error {
	for _, c := range f.Conns {
		if !yield(c) {
			return nil
		}
	}
	return f.ConnErr
}

// ConnectionsFrom uses the index of a connection as its place in the table.
func (f *fake) ConnectionsFrom(_ context.Context, from int, query report.ConnectionQuery, yield func(report.Connection) bool) (next int, err error) {
	f.Query = query
	for i := from; i < len(f.Conns); i++ {
		if !yield(f.Conns[i]) {
			return i, nil
		}
	}
	return 0, f.ConnErr
}

// EndConnections ends the matching connections. It ends at most two per call; the next call
// continues there.
func (f *fake) EndConnections(_ context.Context, from, rate int, matches func(*report.Connection) bool) (done report.Ended, err error) {
	f.EndRate = rate
	f.Conns = slices.DeleteFunc(f.Conns, func(c report.Connection) bool {
		if c.Reply || !matches(&c) {
			return false
		}
		if done.Reset+done.Silent == 2 {
			err, done.Next = context.DeadlineExceeded, from+1
			return false
		}
		if c.Protocol == lb.TCP {
			done.Reset++
		} else {
			done.Silent++
		}
		return true
	})
	return done, errors.Join(err, f.ConnErr)
}

func (f *fake) WatchConnections(ctx context.Context, rate int, yield func([]report.ConnectionEvent, report.Omitted) bool) error {
	if !f.WatchBlocks { // several at once
		f.WatchRate = rate
	}
	if f.WatchErr == nil {
		yield(f.Events, f.Omitted)
	}
	if f.WatchBlocks {
		<-ctx.Done()
	}
	return f.WatchErr
}

func (f *fake) TracePackets(ctx context.Context, _ report.TraceFilter, yield func([]report.PacketTrace, report.Omitted) bool) error {
	if f.TraceBegins != 0 {
		<-time.After(f.TraceBegins)
	}
	if f.WatchErr == nil {
		yield(nil, report.Omitted{})
	}
	if f.TraceBegins != 0 {
		<-ctx.Done()
	}
	return f.WatchErr
}

func (f *fake) Wait(ctx context.Context, version uint64, ids []status.ID) error {
	if f.WaitsForTable {
		return f.Table.Wait(ctx, version, ids)
	}
	if f.OnWait != nil {
		f.OnWait()
	}
	return f.ApplyErr
}

// Bench is a test bench: an API with a store in memory and a fake data path.
type Bench struct {
	T     testing.TB
	API   *httpapi.API
	Fake  *fake
	Store *desired.State
	Http  http.Handler
	Peer  transport.PeerFunc // the sender of the requests of Call
}

// New runs the API. change, if not nil, changes its options.
func New(t testing.TB, change func(*httpapi.Options)) *Bench {
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
	f := &fake{Table: status.NewTable(), Stats: map[lb.Key]report.ServiceStats{}}
	level, err := config.NewLogLevel("info")
	if err != nil {
		t.Fatal(err)
	}
	o := httpapi.Options{
		Network: &netobj.Network{},
		Access:  access.Open(t.TempDir()),
		Store:   st, Statuses: f, DataPath: f, Health: f, Sampler: rates.New(noCounters{}, log), Interfaces: func() map[int]string { return nil }, Log: log,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics\n") }),
		Version: v1.Version{Version: "1.2.3", BuildInfo: "test"}, LogLevel: level,
	}
	if change != nil {
		change(&o)
	}
	a := httpapi.New(o)
	return &Bench{T: t, API: a, Fake: f, Store: st, Http: a.Handler(transport.ByLoopback), Peer: func() (uint32, error) { return 0, nil }}
}

// Call makes a request like a client on this machine.
func (b *Bench) Call(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	b.T.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1:11111"+path, strings.NewReader(body))
	r = r.WithContext(transport.WithPeer(r.Context(), b.Peer))
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	w := httptest.NewRecorder()
	b.Http.ServeHTTP(w, r)
	return w
}

// Serve answers clients of this machine over TCP, until the test ends.
func (b *Bench) Serve() *httptest.Server {
	s := httptest.NewUnstartedServer(b.Http)
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return transport.WithPeer(ctx, b.Peer) }
	s.Start()
	b.T.Cleanup(s.Close)
	return s
}

// Post posts services.
func (b *Bench) Post(body string) *httptest.ResponseRecorder {
	b.T.Helper()
	return b.Call("POST", httpapi.BaseURL+"/config/loadbalancer", body, "Content-Type", "application/json")
}

// MustPost posts services, and expects success.
func (b *Bench) MustPost(body string) {
	b.T.Helper()
	if w := b.Post(body); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"result":"Success"}` {
		b.T.Fatalf("POST %s: %d %s", body, w.Code, w.Body)
	}
}

// List returns the services.
func (b *Bench) List() []v1.LoadbalanceEntry {
	b.T.Helper()
	w := b.Call("GET", httpapi.BaseURL+"/config/loadbalancer/all", "")
	var list v1.LoadbalanceList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 {
		b.T.Fatalf("GET: %d %v %s", w.Code, err, w.Body)
	}
	return list.LbAttr
}

// ProblemOf returns the error in an answer.
func ProblemOf(t testing.TB, w *httptest.ResponseRecorder) v1.Error {
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

// Demo is the service of the README.
const Demo = `{"serviceArguments":{"externalIP":"20.20.20.1","port":2020,"protocol":"tcp"},
 "endpoints":[{"endpointIP":"31.31.31.1","targetPort":5001,"weight":1},{"endpointIP":"32.32.32.1","targetPort":5001,"weight":1}]}`

// DemoKey is the key of Demo.
func DemoKey() lb.Key {
	return lb.Key{VIP: netip.MustParseAddr("20.20.20.1"), Port: 2020, Protocol: lb.TCP}
}
