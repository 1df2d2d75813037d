package balancer

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/kube/internal/translate"
	"loxilb/test/apitest"
	"loxilb/test/await"
	"loxilb/test/certtest"
)

// remote is the API of a balancer over HTTP.
type remote struct {
	*apitest.Bench
	*httptest.Server
	down           atomic.Bool            // end connections without an answer
	changeStatus   atomic.Int32           // answer requests for changes with this status; 0: normally
	readStatus     atomic.Int32           // answer requests for statuses of objects with this status; 0: normally
	applied        atomic.Int32           // number of requests for changes of services
	appliedEarly   atomic.Int32           // number of them before the balancer had a role
	hangsOnRoles   atomic.Bool            // do not answer requests about roles
	waiting        atomic.Int32           // number of unanswered requests
	hangsOnChange  atomic.Bool            // do not answer changes
	dead           atomic.Bool            // do not answer anything
	onRoles        atomic.Pointer[func()] // called by requests about roles
	changeStatuses atomic.Pointer[func(body string) int]
}

// refuse makes the balancer answer changes with the status that a function returns for their body;
// 0: normally. nil: answer all of them normally.
func (r *remote) refuse(status func(body string) int) {
	if status == nil {
		status = func(string) int { return 0 }
	}
	r.changeStatuses.Store(&status)
}

func newRemote(t *testing.T, change func(*httpapi.Options), start func(*httptest.Server)) *remote {
	t.Helper()
	r := &remote{Bench: apitest.New(t, change)}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r.down.Load() {
			panic(http.ErrAbortHandler)
		}
		if r.dead.Load() || r.hangsOnChange.Load() && strings.HasSuffix(q.URL.Path, "/config/apply") || r.hangsOnRoles.Load() && strings.Contains(q.URL.Path, "/config/cistate") {
			r.waiting.Add(1)
			defer r.waiting.Add(-1)
			_, _ = io.Copy(io.Discard, q.Body) // the end of the connection is noticed after the body
			<-q.Context().Done()
			return
		}
		if f := r.onRoles.Load(); f != nil && strings.Contains(q.URL.Path, "/config/cistate") {
			(*f)()
		}
		if strings.HasSuffix(q.URL.Path, "/config/apply") {
			r.applied.Add(1)
			if status := r.changeStatuses.Load(); status != nil {
				body, _ := io.ReadAll(q.Body)
				q.Body = io.NopCloser(bytes.NewReader(body))
				if code := (*status)(string(body)); code != 0 {
					http.Error(w, `{"code":1,"message":"it cuts off a session"}`, code)
					return
				}
			}
			if r.Store.Instances.OfThisNode(r.Store.Snapshot())["llb-inst0"].Role == "" {
				r.appliedEarly.Add(1)
			}
		}
		code := r.changeStatus.Load()
		if q.Method == http.MethodGet {
			code = 0
		}
		if strings.HasSuffix(q.URL.Path, "/status/objects") {
			code = r.readStatus.Load()
		}
		if code != 0 {
			http.Error(w, `{"code":1,"message":"the store is away"}`, int(code))
			return
		}
		r.Http.ServeHTTP(w, q)
	}))
	r.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return transport.WithPeer(ctx, r.Peer) }
	start(r.Server)
	t.Cleanup(r.Close)
	return r
}

// newFleet returns a fleet that is not started: tests call round instead.
func newFleet(t *testing.T, o Options, access Access, remotes ...*remote) *Fleet {
	t.Helper()
	o.Owner, o.Zone, o.Log = "kube-1", "llb", logr.Discard()
	o.Changed = func(types.NamespacedName) {}
	if o.Stuck == nil {
		o.Stuck = func(types.NamespacedName, string) {}
	}
	f := NewFleet(o)
	var targets []Target
	for _, r := range remotes {
		targets = append(targets, targetOf(t, r, access))
	}
	f.SetTargets(targets)
	return f
}

func targetOf(t *testing.T, r *remote, access Access) Target {
	t.Helper()
	u, err := url.Parse(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(u, access)
	if err != nil {
		t.Fatal(err)
	}
	return Target{URL: r.URL, Client: c}
}

// round synchronizes each balancer once, like its loop, and returns the last error.
func (f *Fleet) round(t *testing.T) (last error) {
	t.Helper()
	for _, m := range f.list() {
		_, err := m.sync(t.Context())
		m.synced = err == nil || m.synced && isBusy(err)
		m.recordSync(t.Context(), err)
		if err != nil {
			last = err
		}
	}
	return last
}

// numbered returns the name and entries of Service number i.
func numbered(i, endpoints int) (types.NamespacedName, Desired) {
	name := types.NamespacedName{Namespace: "default", Name: fmt.Sprint("s", i)}
	vip := netip.AddrFrom4([4]byte{20, 20, byte(i >> 8), byte(i)})
	var list []string
	for e := range endpoints {
		list = append(list, fmt.Sprintf(`{"endpointIP":"31.31.31.%d","targetPort":8080,"weight":1}`, e+1))
	}
	spec := fmt.Sprintf(`{"serviceArguments":{"externalIP":"%s","port":80,"protocol":"tcp","name":"%s","owner":"kube-1","managed":true},"endpoints":[%s]}`,
		vip, translate.Name(name.Namespace, name.Name, "llb", 0), strings.Join(list, ","))
	return name, Desired{Common: []translate.Entry{{Key: translate.KeyOf(vip, 80, "TCP"), Address: vip, Port: 80, Protocol: "TCP", Endpoints: endpoints, Spec: json.RawMessage(spec)}}}
}

// names returns the names of a balancer's services, sorted.
func (r *remote) names() string {
	var list []string
	for _, e := range r.List() {
		list = append(list, e.ServiceArguments.Name)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func plain(s *httptest.Server) { s.Start() }

// TestAbsentBalancer deletes a Service while one of two balancers is away. When the balancer
// returns, it keeps the services of others and of Services that exist, also one without endpoints.
func TestAbsentBalancer(t *testing.T) {
	t.Parallel()
	a, b := newRemote(t, nil, plain), newRemote(t, nil, plain)
	for _, other := range []string{`"name":"mine"`, `"name":"default_x:llb-inst0","managed":true,"owner":"kube-2"`} {
		port := 1000 + len(other)
		b.MustPost(fmt.Sprintf(
			`{"serviceArguments":{"externalIP":"20.20.20.20","port":%d,"protocol":"tcp",%s},"endpoints":[{"endpointIP":"31.31.31.9","targetPort":1,"weight":1}]}`,
			port, other))
	}
	f := newFleet(t, Options{}, Access{}, a, b)
	stays, desired := numbered(1, 0)
	f.Set(stays, desired)
	goes, desired := numbered(2, 2)
	f.Set(goes, desired)
	f.Complete()
	if err := f.round(t); err != nil {
		t.Fatal(err)
	}
	const both = "default_s1:llb-inst0 default_s2:llb-inst0"
	if a.names() != both || b.names() != both+" default_x:llb-inst0 mine" {
		t.Fatalf("balancers have %q and %q", a.names(), b.names())
	}
	if s := f.State(stays); !s.Programmed || s.Endpoints != 0 || len(s.Errors) > 0 {
		t.Errorf("state of a Service without endpoints: %+v", s)
	}

	b.down.Store(true)
	f.Delete(goes)
	if err := f.round(t); err == nil {
		t.Fatal("a balancer that is away has answered")
	}
	if a.names() != "default_s1:llb-inst0" || !f.Gone(goes) {
		t.Errorf("the balancer that is there has %q", a.names())
	}
	b.down.Store(false)
	if err := f.round(t); err != nil {
		t.Fatal(err)
	}
	if got := b.names(); got != "default_s1:llb-inst0 default_x:llb-inst0 mine" {
		t.Errorf("the balancer that was away has %q", got)
	}
}

// masters returns the index of each instance's MASTER, as INSTANCE:INDEX.
func masters(t *testing.T, f *Fleet, remotes []*remote) string {
	t.Helper()
	var list []string
	for i, r := range remotes {
		if r.down.Load() {
			continue
		}
		m := f.members[r.URL]
		states, err := m.Client.Instances(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range states {
			if s.State == master {
				list = append(list, fmt.Sprint(strings.TrimPrefix(s.Instance, "llb-inst"), ":", i))
			}
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// TestSpread checks that instances are spread over the balancers that answer. A new balancer gets
// its share after a while; the instances of a dead one move at once.
func TestSpread(t *testing.T) {
	t.Parallel()
	var remotes []*remote
	for range 3 {
		remotes = append(remotes, newRemote(t, nil, plain))
	}
	slices.SortFunc(remotes, func(a, b *remote) int { return strings.Compare(a.URL, b.URL) })
	f := newFleet(t, Options{Roles: Roles{VIP: netip.IPv4Unspecified(), Instances: 6, Spread: true}}, Access{}, remotes...)
	elected := newElection()
	elect := func(settled bool) string {
		_ = f.round(t) // notices balancers that are down
		for _, m := range f.list() {
			if settled {
				m.reachableSince = time.Now().Add(-settleTime)
			}
		}
		for range 6 {
			f.electOnce(t.Context(), elected)
		}
		return masters(t, f, remotes)
	}
	remotes[1].down.Store(true)
	remotes[2].down.Store(true)
	alone := elect(true)
	remotes[1].down.Store(false)
	remotes[2].down.Store(false)
	for _, tc := range []struct{ what, got, want string }{
		{"one balancer", alone, "0:0 1:0 2:0 3:0 4:0 5:0"},
		{"two new balancers", elect(false), "0:0 1:0 2:0 3:0 4:0 5:0"},
		{"after settleTime", elect(true), "0:1 1:2 2:1 3:2 4:0 5:0"},
		{"again", elect(true), "0:1 1:2 2:1 3:2 4:0 5:0"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: instances are at %q, want %q", tc.what, tc.got, tc.want)
		}
	}
	remotes[0].down.Store(true)
	if got := elect(true); got != "0:1 1:2 2:1 3:2" {
		t.Errorf("while a balancer may be restarting, instances are at %q", got)
	}
	elected.awaySince[remotes[0].URL] = time.Now().Add(-restartTime)
	if got := elect(true); got != "0:1 1:2 2:1 3:2 4:1 5:2" {
		t.Errorf("after the death of a balancer, instances are at %q", got)
	}
}

// TestRestart checks that a controller that starts keeps the roles that balancers have, and assigns
// none before it knows those of all balancers.
func TestRestart(t *testing.T) {
	t.Parallel()
	remotes := []*remote{newRemote(t, nil, plain), newRemote(t, nil, plain)}
	slices.SortFunc(remotes, func(a, b *remote) int { return strings.Compare(a.URL, b.URL) })
	o := Options{Roles: Roles{VIP: netip.IPv4Unspecified(), Instances: 2}}
	for i, r := range remotes {
		r.Call("POST", httpapi.BaseURL+"/config/cistate", fmt.Sprintf(`{"instance":"llb-inst%d","state":"MASTER","vip":"0.0.0.0"}`, 1-i), "Content-Type", "application/json")
	}
	f := newFleet(t, o, Access{}, remotes...)
	elected := newElection()
	first := f.members[remotes[0].URL]
	_, err := first.sync(t.Context())
	first.recordSync(t.Context(), err)
	f.electOnce(t.Context(), elected)
	if err != nil || len(elected.masters) > 0 {
		t.Errorf("while the role of one of two balancers is unknown, instances are at %v (%v)", elected.masters, err)
	}
	if err := f.round(t); err != nil {
		t.Fatal(err)
	}
	f.electOnce(t.Context(), elected)
	if got := masters(t, f, remotes); got != "0:1 1:0" {
		t.Errorf("instances are at %q", got)
	}
}

// TestNewBalancers checks that new balancers are BACKUP before they get services, so two never
// answer for a VIP, and that one becomes MASTER at once although another one does not answer.
func TestNewBalancers(t *testing.T) {
	t.Parallel()
	remotes := []*remote{newRemote(t, nil, plain), newRemote(t, nil, plain), newRemote(t, nil, plain)}
	f := newFleet(t, Options{Roles: Roles{VIP: netip.IPv4Unspecified(), Instances: 1}}, Access{}, remotes...)
	f.Set(numbered(1, 1))
	f.Complete()
	remotes[2].down.Store(true)
	_ = f.round(t)
	for _, r := range remotes[:2] {
		if role := r.Store.Instances.OfThisNode(r.Store.Snapshot())["llb-inst0"].Role; r.appliedEarly.Load() > 0 || r.applied.Load() == 0 || role != backup {
			t.Errorf("a new balancer is %q and has got services %d times, %d times without a role", role, r.applied.Load(), r.appliedEarly.Load())
		}
	}
	elected := newElection()
	f.electOnce(t.Context(), elected)
	if got := masters(t, f, remotes); got != "0:0" && got != "0:1" {
		t.Errorf("after the election, MASTERs are %q", got)
	}

	// A MASTER whose lease ended unnoticed gets its role again.
	for _, r := range remotes[:2] {
		if m := f.members[r.URL]; f.master("llb-inst0") == r.URL {
			if lease := r.Store.Instances.OfThisNode(r.Store.Snapshot())["llb-inst0"].Lease; lease != restartTime {
				t.Errorf("the MASTER's lease is %v", lease)
			}
			r.Call("POST", httpapi.BaseURL+"/config/cistate", `{"instance":"llb-inst0","state":"BACKUP"}`, "Content-Type", "application/json")
			m.fullAt = time.Time{}
			if _, err := m.sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.electOnce(t.Context(), elected)
	if got := masters(t, f, remotes); got != "0:0" && got != "0:1" {
		t.Errorf("after a lease has ended, MASTERs are %q", got)
	}

	// A balancer that returns as a second MASTER becomes BACKUP at once, not by the next election.
	for i, r := range remotes[:2] {
		m := f.members[r.URL]
		if f.master("llb-inst0") == r.URL {
			continue
		}
		r.Call("POST", httpapi.BaseURL+"/config/cistate", `{"instance":"llb-inst0","state":"MASTER"}`, "Content-Type", "application/json")
		m.synced = false
		if _, err := m.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := masters(t, f, remotes); got != fmt.Sprint("0:", 1-i) {
			t.Errorf("after the return of balancer %d, MASTERs are %q", i, got)
		}
	}
}

// TestAccess checks requests over TLS: with a token and a CA that change, and with an unknown CA.
func TestAccess(t *testing.T) {
	t.Parallel()
	r := newRemote(t, func(o *httpapi.Options) { o.Token, o.RequireTokens = "second token", true }, (*httptest.Server).StartTLS)
	dir := t.TempDir()
	access := Access{CAFile: filepath.Join(dir, "ca.crt"), TokenFile: filepath.Join(dir, "token"), ServerName: "example.com"}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})
	for file, text := range map[string]string{access.CAFile: string(certificate), access.TokenFile: "first token\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := newFleet(t, Options{}, access, r)
	service, desired := numbered(1, 1)
	f.Set(service, desired)
	if err := f.round(t); err == nil || f.State(service).Reachable > 0 {
		t.Errorf("a wrong token is accepted: %v", err)
	}
	if !f.members[r.URL].isRestarting() { // so it stays MASTER for restartTime
		t.Error("a balancer that refuses the token counts as dead")
	}
	if err := os.WriteFile(access.TokenFile, []byte("second token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.round(t); err != nil || !f.State(service).Programmed {
		t.Errorf("the right token is not: %v", err)
	}
	for _, tc := range []struct {
		pem  []byte
		want bool
	}{{certtest.NewAuthority(t, "other").Cert, false}, {certificate, true}} {
		if err := os.WriteFile(access.CAFile, tc.pem, 0o600); err != nil {
			t.Fatal(err)
		}
		f.members[r.URL].Client.http.CloseIdleConnections()
		if err := f.round(t); (err == nil) != tc.want {
			t.Errorf("after the CA was replaced: %v, want success %v", err, tc.want)
		}
	}
	access.CAFile = ""
	withoutCA := newFleet(t, Options{}, access, r)
	if err := withoutCA.round(t); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown certificate: %v", err)
	}
}

// TestThousandServices checks that a balancer gets 1,000 services with 5,000 endpoints in a few
// requests, and none again.
func TestThousandServices(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	f := newFleet(t, Options{}, Access{}, r)
	for i := range 1000 {
		f.Set(numbered(i, 5))
	}
	f.Complete()
	for _, what := range []string{"new", "again"} {
		began := time.Now()
		if err := f.round(t); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v", what, time.Since(began).Round(time.Millisecond))
	}
	if got := r.applied.Load(); got != 2 {
		t.Errorf("there were %d requests with services, want 2", got)
	}
	if n := len(r.List()); n != 1000 {
		t.Errorf("the balancer has %d services", n)
	}
}

// TestBatches checks that Services that change one after the other share requests: a request for
// each would cost a balancer four times the CPU time.
func TestBatches(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	f := newFleet(t, Options{}, Access{}, r)
	f.Complete()
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	var ended sync.WaitGroup
	ended.Go(func() { _ = f.Start(ctx) })
	const services = 300
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := range services {
		<-tick.C
		f.Set(numbered(i, 1))
	}
	await.True(t, time.Minute, "the balancer has all services", func() bool { return len(r.List()) == services })
	cancel()
	ended.Wait()
	took := time.Since(began)
	if got, most := int(r.applied.Load()), int(took/batchPause)+2; got > most {
		t.Errorf("there were %d requests with services in %v, want %d at most", got, took, most)
	}
}
