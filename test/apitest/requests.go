package apitest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/internal/control/status"
	"loxilb/internal/lb"
)

// Apply applies a list of objects.
func (b *Bench) Apply(body string) (int, v1.ApplyResult, v1.Error) {
	b.T.Helper()
	w := b.Call("POST", httpapi.BaseURL+"/config/apply", body)
	var r v1.ApplyResult
	if w.Code != 200 {
		return w.Code, r, ProblemOf(b.T, w)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		b.T.Fatal(err)
	}
	return w.Code, r, v1.Error{}
}

// Login returns the token of a user.
func (b *Bench) Login(name, password string) string {
	b.T.Helper()
	w := b.Json("", "POST", "/auth/login", fmt.Sprintf(`{"username":%q,"password":%q}`, name, password))
	var got v1.LoginToken
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || got.Token == "" || w.Header().Get("Cache-Control") != "no-store" {
		b.T.Fatalf("login of %s: %d %s", name, w.Code, w.Body)
	}
	return got.Token
}

// Json makes a request with a token.
func (b *Bench) Json(token, method, path, body string) *httptest.ResponseRecorder {
	b.T.Helper()
	return b.Call(method, httpapi.BaseURL+path, body, "Authorization", token, "Content-Type", "application/json")
}

// PostSlowly posts a service, and returns when the server has read the given beginning of the body.
// It sends the status to ended once the body has ended.
func (b *Bench) PostSlowly(t *testing.T, start string, ended chan<- int) *io.PipeWriter {
	t.Helper()
	pr, pw := io.Pipe()
	go func() {
		r := httptest.NewRequest("POST", "http://127.0.0.1:11111"+httpapi.BaseURL+"/config/loadbalancer", pr)
		r = r.WithContext(transport.WithPeer(r.Context(), b.Peer))
		w := httptest.NewRecorder()
		b.Http.ServeHTTP(w, r)
		ended <- w.Code
	}()
	if _, err := io.WriteString(pw, start); err != nil {
		t.Fatal(err)
	}
	return pw
}

// Counts returns how many objects of each kind are stored.
func (b *Bench) Counts() string {
	at := b.Store.Snapshot()
	return fmt.Sprint(b.Store.Services.Len(at), b.Store.Endpoints.Len(at), b.Store.Rules.Len(at), " revision ", at.Revision())
}

// Stored returns the endpoints that are objects, in the format of the journal.
func (b *Bench) Stored() (list []string) {
	b.T.Helper()
	for e := range b.Store.Endpoints.All(b.Store.Snapshot()) {
		data, err := e.MarshalRecord()
		if err != nil {
			b.T.Fatal(err)
		}
		list = append(list, string(data))
	}
	return list
}

// Unread answers a client that reads its response only when the test calls read. It returns once
// the response has begun.
func Unread(answer func(w http.ResponseWriter)) (read func() *httptest.ResponseRecorder) {
	w := unreadWriter{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		answer(w)
	}()
	<-w.begun
	return func() *httptest.ResponseRecorder {
		close(w.read)
		<-ended
		return w.ResponseRecorder
	}
}

// unreadWriter is the connection to a client that does not read.
type unreadWriter struct {
	*httptest.ResponseRecorder
	begun chan struct{} // gets a value when the response begins
	read  chan struct{} // is closed when the client reads
}

func (w unreadWriter) Write(b []byte) (int, error) {
	select {
	case w.begun <- struct{}{}:
		<-w.read
	case <-w.read:
	}
	return w.ResponseRecorder.Write(b)
}

// Events starts a stream. The answer may be a refusal.
func (b *Bench) Events(server *httptest.Server, query, lastEventID string) *streamed {
	b.T.Helper()
	req, err := http.NewRequestWithContext(b.T.Context(), "GET", server.URL+httpapi.BaseURL+"/events"+query, nil)
	if err != nil {
		b.T.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	if lastEventID != "" {
		req.Header.Set("Last-Event-ID", lastEventID)
	}
	resp, err := server.Client().Do(req)
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(func() { _ = resp.Body.Close() })
	return &streamed{resp, bufio.NewScanner(resp.Body)}
}

// Next returns the next event: its lines without the JSON.
func (s *streamed) Next(t *testing.T) string {
	t.Helper()
	var out []string
	for s.lines.Scan() {
		line := s.lines.Text()
		if line == "" {
			return strings.Join(out, " ")
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var e v1.Event
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Errorf("%v: %s", err, data)
			}
			if e.Seq != 0 {
				line = e.Object
			}
		}
		out = append(out, line)
	}
	t.Fatalf("the stream ended: %v %q", s.lines.Err(), out)
	return ""
}

// Upload posts a file like curl -F.
func (b *Bench) Upload(field, file string) (code int, out v1.ApplyResult, message string) {
	b.T.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile(field, "loxilb-config.json")
	if err != nil {
		b.T.Fatal(err)
	}
	if _, err := part.Write([]byte(file)); err != nil || w.Close() != nil {
		b.T.Fatalf("got %v, want no error, w.Close() == nil", err)
	}
	r := httptest.NewRequest("POST", "http://127.0.0.1:11111"+httpapi.BaseURL+"/config/import", &form)
	r = r.WithContext(transport.WithPeer(r.Context(), b.Peer))
	r.Header.Set("Content-Type", w.FormDataContentType())
	answer := httptest.NewRecorder()
	b.Http.ServeHTTP(answer, r)
	if answer.Code != 200 {
		return answer.Code, out, ProblemOf(b.T, answer).Message
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &out); err != nil {
		b.T.Fatal(err)
	}
	return answer.Code, out, ""
}

// Rules returns the stored rules in order.
func (b *Bench) Rules() (list []string) {
	for r := range b.Store.Rules.All(b.Store.Snapshot()) {
		list = append(list, r.String())
	}
	slices.Sort(list)
	return list
}

// PostRule posts a firewall rule.
func (b *Bench) PostRule(body string) (code int, text string) {
	w := b.Call("POST", httpapi.BaseURL+"/config/firewall", body, "Content-Type", "application/json")
	return w.Code, w.Body.String()
}

// Addresses returns the addresses of the services or endpoints in a list.
func (b *Bench) Addresses(t *testing.T, query string) (out []string) {
	t.Helper()
	var list struct {
		LbAttr []v1.LoadbalanceEntry
		Attr   []v1.EndpointProbe
	}
	w := b.Call("GET", httpapi.BaseURL+"/"+strings.ReplaceAll(query, " ", "+"), "")
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 {
		t.Fatalf("%s: got %v %s, want no error, code 200", query, err, w.Body)
	}
	for _, e := range list.LbAttr {
		out = append(out, e.ServiceArguments.ExternalIP)
	}
	for _, e := range list.Attr {
		out = append(out, e.HostName)
	}
	return out
}

// AsRequest writes a service as a request with an oper.
func (b *Bench) AsRequest(s *lb.Service, oper int) string {
	b.T.Helper()
	e := b.API.Entry(b.Store.Snapshot(), s)
	e.Status = nil
	e.ServiceArguments.Oper = oper
	out, err := json.Marshal(v1.RequestOf([]v1.LoadbalanceEntry{*e}))
	if err != nil {
		b.T.Fatal(err)
	}
	return string(out)
}

// Policies returns the policers.
func (b *Bench) Policies() []v1.Policy {
	b.T.Helper()
	var list v1.PolicyList
	if err := json.Unmarshal(b.Call("GET", httpapi.BaseURL+"/config/policy/all", "").Body.Bytes(), &list); err != nil {
		b.T.Fatal(err)
	}
	return list.PolAttr
}

// Follow acts as a reconciler until the test ends. Services of TCP port 666 fail.
func (b *Bench) Follow() {
	b.Fake.WaitsForTable = true
	table, done := b.Fake.Table, make(chan struct{})
	b.T.Cleanup(func() { close(done) })
	go func() {
		var seen uint64
		for {
			changed := b.Store.Changed()
			now, ids, _ := b.Store.Since(seen)
			for _, id := range ids {
				sid, version := status.ID(id), uint64(0)
				if meta, ok := now.Meta(id); ok {
					version = meta.Version
				}
				table.Want(sid, version)
				switch {
				case version == 0:
					table.Forget(sid)
				case strings.HasSuffix(id.Key, ":666/tcp"):
					table.Failed(sid, version, ErrDataPath, time.Now().Add(4*time.Second))
				default:
					table.Succeeded(sid, version)
				}
			}
			seen = now.Revision()
			table.Seen("service", seen)
			select {
			case <-changed:
			case <-done:
				return
			}
		}
	}()
}

// Statuses returns the statuses that match a query.
func (b *Bench) Statuses(query string) []v1.Status {
	b.T.Helper()
	w := b.Call("GET", httpapi.BaseURL+"/status/objects"+query, "")
	var list v1.StatusList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 {
		b.T.Fatalf("GET: %d %v %s", w.Code, err, w.Body)
	}
	return list.StatusAttr
}

// SummaryOfOne checks the summary of one service.
func (b *Bench) SummaryOfOne() {
	b.T.Helper()
	if w := b.Call("GET", httpapi.BaseURL+"/status/services?state=degraded", ""); !strings.Contains(w.Body.String(), `"evidence":"31.31.31.3:8080: said down"`) {
		b.T.Errorf("the reasons of the state degraded are %s", w.Body)
	}
	w := b.Call("GET", httpapi.BaseURL+"/status/service?key=20.20.20.3:80/tcp", "")
	var one v1.ServiceDetail
	if err := json.Unmarshal(w.Body.Bytes(), &one); err != nil {
		b.T.Fatal(err, w.Body)
	}
	if one.Summary.State != "degraded" || one.Summary.Up != 1 || one.Service.ServiceArguments.Name != "web-3" || len(one.Endpoints) != 2 ||
		one.Endpoints[0].State != "down" || one.Endpoints[0].Evidence != "said down" || one.Endpoints[1].State != "up" {
		b.T.Errorf(`got %s, want one.Summary.State == "degraded", one.Summary.Up == 1, one.Service.ServiceArguments.Name == "web-3", `+
			`2 elements in one.Endpoints, one.Endpoints[0].State == "down", one.Endpoints[0].Evidence == "said down", one.Endpoints[1].State == "up"`,
			w.Body)
	}
	times := v1.HandshakeTimes{Count: 2, Median: 0.001, P99: 0.002}
	if e := one.Endpoints[0]; e.Checked.Unix() != 1e9 || e.Downs != 3 || e.Downtime != 40 || e.ProbeTime != 0.005 || *e.Handshakes != times || *one.Summary.Handshakes != times {
		b.T.Errorf("evidence: %s", w.Body)
	}
	for query, want := range map[string]int{"": 400, "?key=x": 400, "?key=20.20.20.9:80/tcp": 404} {
		if w := b.Call("GET", httpapi.BaseURL+"/status/service"+query, ""); w.Code != want {
			b.T.Errorf("%s: got %d %s, want code %d", query, w.Code, w.Body, want)
		}
	}
}

// streamed is a stream of events as a client sees it.
type streamed struct {
	*http.Response
	lines *bufio.Scanner
}
