package observation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/event"
	"loxilb/test/apitest"
)

func applied(key string) event.Object {
	return event.Object{ObjectKind: "service", Key: key, Version: 1, Action: event.Applied}
}

// TestEventsOfService checks that the events of a service include health events of its endpoints
// that name the service.
func TestEventsOfService(t *testing.T) {
	t.Parallel()
	hub := event.NewHub()
	b := apitest.New(t, func(o *httpapi.Options) { o.Events = hub })
	var want []uint64
	for i, c := range []struct {
		of   event.Body
		want bool
	}{
		{event.Health{Services: []string{"20.20.20.2:80/tcp", "20.20.20.1:80/tcp"}}, true},
		{event.Health{Services: []string{"20.20.20.2:80/tcp"}}, false},
		{applied("20.20.20.1:80/tcp"), true},
		{applied("20.20.20.2:80/tcp"), false},
	} {
		hub.Publish(c.of)
		if c.want {
			want = append(want, uint64(i)+1)
		}
	}
	var got []uint64
	for _, e := range apitest.GetAs[v1.EventList](b, "/events?object=service+20.20.20.1:80/tcp").EventAttr {
		got = append(got, e.Seq)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got events %v, want %v", got, want)
	}
}

func TestListEvents(t *testing.T) {
	t.Parallel()
	hub := event.NewHub()
	b := apitest.New(t, func(o *httpapi.Options) { o.Events = hub })
	hub.Publish(applied("a"))
	hub.Publish(event.Link{Index: 2, Name: "eth0", Action: event.Added})
	hub.Publish(applied("b"))
	hub.Publish(event.Address{Addr: netip.MustParseAddr("10.0.0.1"), Action: event.Removed})
	for query, want := range map[string]string{
		"":                     "1 service a, 2 eth0, 3 service b, 4 10.0.0.1",
		"?limit=2":             "3 service b, 4 10.0.0.1",
		"?limit=100":           "1 service a, 2 eth0, 3 service b, 4 10.0.0.1",
		"?kind=object":         "1 service a, 3 service b",
		"?kind=link,object":    "1 service a, 2 eth0, 3 service b",
		"?kind=object&limit=1": "3 service b",
		"?object=service+a":    "1 service a",
		"?kind=pressure":       "",
	} {
		w := b.Call("GET", httpapi.BaseURL+"/events"+query, "")
		var list v1.EventList
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 {
			t.Errorf("%q: got %d %v %s, want no error, code 200", query, w.Code, err, w.Body)
			continue
		}
		var got []string
		for _, e := range list.EventAttr {
			got = append(got, fmt.Sprintf("%d %s", e.Seq, e.Object))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%q: %v, want %s", query, got, want)
		}
	}
	for query, field := range map[string]string{"?limit=-1": "limit", "?kind=weather": "kind", "?kind=link,": "kind", "?since=1": "parameter"} {
		w := b.Call("GET", httpapi.BaseURL+"/events"+query, "")
		if e := apitest.ProblemOf(t, w); w.Code != 400 || e.Field != field || strings.ContainsAny(e.Allowed, "[]") {
			t.Errorf("%q: got %d %+v, want code 400 about %s, with the allowed values", query, w.Code, e, field)
		}
	}
}

func TestStreamEvents(t *testing.T) {
	t.Parallel()
	hub := event.NewHub()
	b, server := apitest.ServeEvents(t, hub)
	hub.Publish(applied("before"))
	s := b.Events(server, "", "")
	if ct := s.Header.Get("Content-Type"); ct != "text/event-stream" || s.StatusCode != 200 {
		t.Fatalf(`got %s %s, want ct == "text/event-stream", code 200`, s.Status, ct)
	}
	objects := b.Events(server, "?kind=object&object=service+mine", "")
	hub.Publish(event.Link{Index: 2, Name: "eth0", Action: event.Added})
	hub.Publish(applied("other"))
	hub.Publish(applied("mine"))
	for _, want := range []string{"id: 2 event: link eth0", "id: 3 event: object service other", "id: 4 event: object service mine"} {
		if got := s.Next(t); got != want {
			t.Errorf("the next event is %q, want %q", got, want)
		}
	}
	if got := objects.Next(t); got != "id: 4 event: object service mine" {
		t.Errorf(`got %q, want "id: 4 event: object service mine"`, got)
	}
	// A client that reconnects gets the events that it missed; one with a number of an earlier
	// daemon gets all.
	for id, want := range map[string]string{"2": "id: 3 event: object service other", "0": "id: 1 event: object service before", "99": "id: 1 event: object service before"} {
		if got := b.Events(server, "", id).Next(t); got != want {
			t.Errorf("after %s: %q, want %q", id, got, want)
		}
	}
	if s := b.Events(server, "", "x"); s.StatusCode != 400 {
		t.Errorf("got %v, want code 400", s.Status)
	}
	for range event.Capacity {
		hub.Publish(applied("many"))
	}
	again := b.Events(server, "", "2")
	if got := again.Next(t); got != `event: lost data: {"lost":2}` {
		t.Errorf(`got %q, want event: lost data: {"lost":2}`, got)
	}
	if got := again.Next(t); got != "id: 5 event: object service many" {
		t.Errorf(`got %q, want "id: 5 event: object service many"`, got)
	}
}

// TestStreamLimit checks that the number of streams is bounded, that closed ones free their place,
// and that a stopping server does not wait for streams.
func TestStreamLimit(t *testing.T) {
	t.Parallel()
	b, server := apitest.ServeEvents(t, event.NewHub())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, err := http.NewRequestWithContext(ctx, "GET", server.URL+httpapi.BaseURL+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	first.Header.Set("Accept", "text/event-stream")
	resp, err := server.Client().Do(first)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // of a test
	for range rest.EventStreams().All - 1 {
		if s := b.Events(server, "", ""); s.StatusCode != 200 {
			t.Fatalf("got %v, want code 200", s.Status)
		}
	}
	s := b.Events(server, "", "")
	var e v1.Error
	if err := json.NewDecoder(s.Body).Decode(&e); err != nil || s.StatusCode != 503 || !strings.Contains(e.Message, "64 clients follow events already") {
		t.Errorf(`got %s %v %+v, want no error, code 503, "64 clients follow events already" in the message`,
			s.Status, err, e)
	}
	cancel()
	deadline := time.Now().Add(10 * time.Second)
	for b.Events(server, "", "").StatusCode != 200 {
		if time.Now().After(deadline) {
			t.Fatal("a closed stream is still counted")
		}
	}
	done := make(chan error, 1)
	go func() { done <- server.Config.Shutdown(t.Context()) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("streams delay the end of the server")
	}
}

// TestStuckStream checks that a client that stops reading is disconnected, also while events
// continue.
func TestStuckStream(t *testing.T) {
	t.Parallel()
	hub := event.NewHub()
	b, server := apitest.ServeEvents(t, hub)
	b.API.Observation.Streams.Stall = 20 * time.Millisecond
	b.Events(server, "", "") // its client does not read
	long := applied(strings.Repeat("x", 1000))
	deadline := time.Now().Add(20 * time.Second)
	for b.API.Observation.Streams.Followers.Held() > 0 {
		if time.Now().After(deadline) {
			t.Fatal("the subscription of a disconnected client still exists")
		}
		for range event.Capacity / 4 {
			hub.Publish(long)
		}
	}
}

// TestStreamOfEndedToken checks that a stream ends with the token that opened it, with a message,
// and that streams of the user's other tokens and of other users continue.
func TestStreamOfEndedToken(t *testing.T) {
	t.Parallel()
	b, tokens := apitest.Secured(t)
	b.Fake.WatchBlocks = true
	server := httptest.NewServer(b.Http)
	t.Cleanup(server.Close)
	t.Cleanup(b.API.Observation.Streams.Close) // runs before the server's cleanup, and ends open streams
	follow := func(path, token string) <-chan string {
		req, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+httpapi.BaseURL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "text/event-stream")
		req.Header.Set("Authorization", token)
		resp, err := server.Client().Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("got %v %v, want no error, code 200", err, resp)
		}
		end := make(chan string, 1)
		go func() {
			defer resp.Body.Close() //nolint:errcheck // of a test
			text, _ := io.ReadAll(resp.Body)
			end <- string(text)
		}()
		return end
	}
	second := b.Login("operate", apitest.Passphrase)
	stays := follow("/events", second)
	admins := follow("/config/conntrack/events", tokens["admin"])
	id := map[string]int64{}
	for _, u := range b.API.Access.List() {
		id[u.Name] = u.ID
	}
	for name, end := range map[string]func() error{
		"operate": func() error { return b.API.Access.Logout(tokens["operate"]) },
		"view":    func() error { return b.API.Access.Delete(id["view"]) },
	} {
		streams := []<-chan string{follow("/events", tokens[name]), follow("/config/conntrack/events", tokens[name])}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		for i, stream := range streams {
			select {
			case text := <-stream:
				if !strings.HasSuffix(text, `event: end`+"\n"+`data: {"message":"`+access.ErrEnded.Error()+`"}`+"\n\n") {
					t.Errorf("%s, stream %d: %q", name, i, text)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: stream %d does not end", name, i)
			}
		}
	}
	select {
	case text := <-stays:
		t.Errorf("the stream of another token ended: %q", text)
	case text := <-admins:
		t.Errorf("the stream of another user ended: %q", text)
	default:
	}
	b.API.Observation.Streams.Close()
	if text := <-stays; !strings.Contains(text, `{"message":"loxilb ends"}`) {
		t.Errorf("loxilb ends: %q", text)
	}
}
