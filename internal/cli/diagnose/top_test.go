package diagnose

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/pflag"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/test/await"
)

// daemon serves rates of this many services: one update for each request, and one more for each
// tick.
type daemon struct {
	*httptest.Server
	services int
	tick     chan struct{}

	mu        sync.Mutex
	questions []url.Values
	away      bool
}

func newDaemon(t *testing.T, services int) *daemon {
	t.Helper()
	d := &daemon{services: services, tick: make(chan struct{})}
	d.Server = httptest.NewServer(d)
	t.Cleanup(d.Close)
	t.Cleanup(d.CloseClientConnections)
	return d
}

func (d *daemon) leave(away bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away = away
}

// lastQuery returns the query of the last request.
func (d *daemon) lastQuery() url.Values {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.questions[len(d.questions)-1]
}

func (d *daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	d.mu.Lock()
	d.questions = append(d.questions, q)
	away := d.away
	d.mu.Unlock()
	if away {
		panic(http.ErrAbortHandler)
	}
	if q.Get("service") == "20.0.0.3:80/tcp" || q.Get("sort") == "speed" {
		w.WriteHeader(404)
		_ = json.NewEncoder(w).Encode(v1.Error{Code: 404, Message: "it is gone", Result: "it is gone"})
		return
	}
	for end := time.Unix(1e9, 0); ; end = end.Add(time.Second) {
		data, _ := json.Marshal(d.update(q, end))
		fmt.Fprintf(w, "event: rates\ndata: %s\n\n", data)
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-d.tick:
		}
	}
}

func (d *daemon) update(q url.Values, end time.Time) *v1.RatesUpdate {
	offset, _ := strconv.Atoi(q.Get("offset"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	u := &v1.RatesUpdate{Total: v1.TotalRates{
		Time: end, Seconds: 1, Services: d.services, Endpoints: 2 * d.services, EndpointsDown: 1, Rates: v1.Rates{Connections: 1234, BytesOut: 1e9},
		Drops: []v1.DropRate{{Reason: "no-route", Rate: 3, Packets: 9}}, Dropped: 3, Connections: 500, ConnectionsMax: 1000,
	}}
	u.List.Matched = d.services
	if q.Get("match") != "" {
		u.List.Matched = 1
	}
	for i := offset; i < min(offset+limit, u.List.Matched); i++ {
		u.List.Services = append(u.List.Services, v1.ServiceRates{
			Service: fmt.Sprintf("20.0.%d.%d:80/tcp", i/200, i%200), Name: "web\x1b[31m", EndpointCount: 3, EndpointsUp: 1, EndpointsDown: 1,
			Rates: v1.Rates{Connections: float32(i), BytesIn: 125, RepeatedSyns: 0.5},
		})
	}
	if service := q.Get("service"); service != "" {
		u.List.Matched = 1
		u.List.Services = []v1.ServiceRates{{Service: service, EndpointCount: 2, Endpoints: []v1.EndpointRates{
			{Endpoint: "31.1.1.1:8080", State: "up"}, {Endpoint: "31.1.1.2:8080", State: "down", Rates: v1.Rates{FailedHandshakes: 7}},
		}}}
	}
	return u
}

// screenBench is top's screen, driven by the test.
type screenBench struct {
	*model
	t       *testing.T
	results chan queryResult
}

func newScreen(t *testing.T, d *daemon, g glyphs) *screenBench {
	t.Helper()
	o := &session.Options{}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Register(fs)
	at, err := url.Parse(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := fs.Parse([]string{"-s", at.Hostname(), "-p", at.Port()}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	b := &screenBench{model: newModel(&feed{session: o, ctx: ctx}, "connections", "", g), t: t, results: make(chan queryResult)}
	b.send = func(n queryResult) {
		select {
		case b.results <- n:
		case <-ctx.Done():
		}
	}
	b.Init()
	return b
}

// awaitResponse handles messages until the response to the last request has arrived.
func (b *screenBench) awaitResponse() {
	b.t.Helper()
	for {
		select {
		case n := <-b.results:
			if b.Update(n); n.number == b.feed.number {
				return
			}
		case <-time.After(10 * time.Second):
			b.t.Fatal("no update")
		}
	}
}

// typeKeys presses keys, by name or letter. Each may cause a request.
func (b *screenBench) typeKeys(keys ...string) {
	b.t.Helper()
	codes := map[string]rune{
		"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "pgdown": tea.KeyPgDown, "end": tea.KeyEnd, "home": tea.KeyHome,
		"backspace": tea.KeyBackspace, "space": tea.KeySpace,
	}
	for _, k := range keys {
		before := b.feed.number
		key := tea.KeyPressMsg{Code: codes[k]}
		if key.Code == 0 {
			key = tea.KeyPressMsg{Code: rune(k[0]), Text: k}
		}
		b.Update(key)
		if b.feed.number != before {
			b.awaitResponse()
		}
	}
}

// expect checks that the screen has texts, and fits the terminal.
func (b *screenBench) expect(texts ...string) {
	b.t.Helper()
	lines := strings.Split(b.View().Content, "\n")
	plain := ansi.Strip(b.View().Content)
	for _, text := range texts {
		if !strings.Contains(plain, text) {
			b.t.Errorf("%q is not shown:\n%s", text, plain)
		}
	}
	if len(lines) > max(1, b.height) {
		b.t.Errorf("%d lines of %d", len(lines), b.height)
	}
	for _, l := range lines {
		if w := ansi.StringWidth(l); w > b.width {
			b.t.Errorf("a line is %d wide, of %d: %q", w, b.width, ansi.Strip(l))
		}
	}
}

// TestTopKeys checks that keys select, sort, filter, page and open endpoints, in a list of 10,000
// services that the server sends in pages.
func TestTopKeys(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, 10_000)
	b := newScreen(t, d, utf8Glyphs())
	b.awaitResponse()
	b.expect("10000 services  20000 endpoints (1 down)", "table 500/1000 50%", "1234 ", "8.0G", "drops 3/s: no-route 3",
		">20.0.0.0:80/tcp", "services 1-16 of 10000, by connections", "1000", "1/3")
	if q := d.lastQuery(); q.Get("limit") != "16" || q.Get("sort") != "connections" {
		t.Errorf("a page is asked for, and not %v", q)
	}
	b.typeKeys("down", "down", "end")
	b.expect("services 9985-10000 of 10000", ">20.0.49.199:80/tcp")
	b.typeKeys("home", "pgdown", "down", "up")
	b.expect("services 3-18 of 10000", ">20.0.0.16:80/tcp")
	b.typeKeys("f", "<")
	if q := d.lastQuery(); q.Get("sort") != "repeatedSyns" || q.Get("offset") != "0" {
		t.Errorf(`got %v, want q.Get("sort") == "repeatedSyns", q.Get("offset") == "0"`, q)
	}
	b.typeKeys(">", ">", "b")
	b.expect("by bytes")
	b.typeKeys("/", "w", "x", "backspace", "b")
	b.expect("filter: wb_")
	b.typeKeys("enter")
	b.expect("services 1-1 of 1, by bytes, with wb")
	if q := d.lastQuery(); q.Get("match") != "wb" {
		t.Errorf(`got %v, want q.Get("match") == "wb"`, q)
	}
	b.typeKeys("enter")
	b.expect("ENDPOINT", "STATE", ">31.1.1.1:8080", "20.0.0.0:80/tcp", "esc services")
	if q := d.lastQuery(); q.Get("service") != "20.0.0.0:80/tcp" || q.Get("endpoints") != "true" || q.Has("match") && q.Get("match") != "" {
		t.Errorf(`got %v, want q.Get("service") == "20.0.0.0:80/tcp", `+
			`q.Get("endpoints") == "true", not q.Has("match") or no q.Get("match")`,
			q)
	}
	b.typeKeys("down", "enter", "n")
	b.expect(">31.1.1.2:8080", "down")
	b.typeKeys("esc")
	b.expect("with wb", "by bytes")
	b.typeKeys("esc")
	b.expect("of 10000")
	b.typeKeys("?")
	b.expect("Press any key")
	b.typeKeys("q", "space")
	b.expect("PAUSED")
	if cmd := b.press(tea.KeyPressMsg{Code: 'q', Text: "q"}); cmd == nil {
		t.Error("q does not end it")
	}
}

// TestTopLosesDaemon checks that top reports a daemon that goes away and retries until it returns,
// that a deleted service leads back to the list of services, and that top ends if its first request
// fails.
func TestTopLosesDaemon(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, 5)
	b := newScreen(t, d, asciiGlyphs())
	b.awaitResponse()
	for range 3 {
		d.tick <- struct{}{}
		b.awaitResponse()
	}
	if n := len(b.totals[0]); n != 4 {
		t.Errorf("%d windows are remembered", n)
	}
	b.typeKeys("a")
	if n := len(b.totals[0]); n > 5 {
		t.Errorf("the answer to another question counted as a window: %d", n)
	}
	d.leave(true)
	d.CloseClientConnections()
	b.awaitResponse()
	b.expect("NOT UPDATED: ", "; trying again", "20.0.0.4:80/tcp")
	d.leave(false)
	for b.lost != nil {
		b.awaitResponse()
	}
	b.expect("services 1-5 of 5, by active")
	b.typeKeys("down", "down", "down")
	b.typeKeys("enter")
	if b.service != "" || b.feed.number == 0 {
		t.Errorf("the service is gone, and its endpoints are shown")
	}
	b.expect("services 1-5 of 5")
	d.leave(true)
	first := newScreen(t, d, asciiGlyphs())
	if first.awaitResponse(); first.failed == nil || refusal(first.failed) {
		t.Errorf("a daemon that was never there: %v", first.failed)
	}
	d.leave(false)
	refused := newScreen(t, d, asciiGlyphs())
	refused.awaitResponse()
	refused.sort = "speed"
	refused.request()
	if refused.awaitResponse(); !refusal(refused.failed) {
		t.Errorf("a question that is refused: %v", refused.failed)
	}
}

// TestTopSizes checks that the screen fits a terminal of any size, and shows names and trends if
// there is room.
func TestTopSizes(t *testing.T) {
	t.Parallel()
	b := newScreen(t, newDaemon(t, 100), utf8Glyphs())
	b.awaitResponse()
	for _, size := range [][2]int{{80, 24}, {160, 50}, {100, 30}, {120, 10}, {40, 12}, {79, 9}, {20, 4}, {1, 1}, {300, 100}} {
		before := b.feed.number
		b.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		if b.feed.number != before {
			b.awaitResponse()
		}
		b.expect()
		b.typeKeys("?")
		b.expect()
		b.typeKeys("?")
		if size[0] >= 100 {
			b.expect("NAME", "web.[31m")
		}
	}
}

// TestTopProgram checks that the program gets the terminal's keys, and that the terminal gets its
// output.
func TestTopProgram(t *testing.T) {
	t.Parallel()
	b := newScreen(t, newDaemon(t, 3), utf8Glyphs())
	in, out := &keys{more: make(chan string, 10)}, &screenOutput{}
	p := tea.NewProgram(b.model, tea.WithContext(t.Context()), tea.WithInput(in), tea.WithOutput(out),
		tea.WithWindowSize(80, 24), tea.WithEnvironment([]string{"TERM=xterm", "NO_COLOR=1"}))
	b.send = func(n queryResult) { p.Send(n) }
	done := make(chan error, 1)
	go func() { _, err := p.Run(); done <- err }()
	out.wait(t, "20.0.0.2:80/tcp")
	in.more <- "\r"
	out.wait(t, "31.1.1.2:8080")
	in.more <- "q"
	select {
	case err := <-done:
		if err != nil || b.failed != nil {
			t.Errorf("got %v %v, want no error, b.failed == nil", err, b.failed)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("q does not end it")
	}
	if strings.Contains(out.String(), "\x1b[31m") {
		t.Error("there are colors in spite of NO_COLOR")
	}
}

// keys is a terminal's input.
type keys struct{ more chan string }

func (k *keys) Read(b []byte) (int, error) { return copy(b, <-k.more), nil }

// screenOutput is a terminal's output.
type screenOutput struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *screenOutput) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *screenOutput) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func (p *screenOutput) wait(t *testing.T, text string) {
	t.Helper()
	await.NoError(t, 10*time.Second, func() error {
		if !strings.Contains(p.String(), text) {
			return fmt.Errorf("%q does not appear: %q", text, p.String())
		}
		return nil
	})
}

// TestShort checks that numbers have at most five characters, and that sparklines fit their width.
func TestShort(t *testing.T) {
	t.Parallel()
	for n, want := range map[float64]string{
		0: "0", 0.04: "0.1", 0.25: "0.2", 9.94: "9.9", 9.96: "10", 42: "42", 9999: "9999", 9999.6: "10k", 12345: "12k",
		1.5e6: "1.5M", 999.6e6: "1.0G", 3.2e12: "3.2T", 1e22: "10000E",
	} {
		if got := short(n); got != want {
			t.Errorf("%v: %s, want %s", n, got, want)
		}
	}
	g := utf8Glyphs()
	if got := g.sparkline([]float32{9, 0, 1, 4, 8}, 4); got != " ▂▅█" {
		t.Errorf(`got %q, want " ▂▅█"`, got)
	}
	if got := g.sparkline([]float32{0, 0}, 4); got != "    " {
		t.Errorf(`got %q, want "    "`, got)
	}
}

// TestPrintable checks that text of other sources cannot move the cursor (in 7 or 8 bits) or change
// the text's direction.
func TestPrintable(t *testing.T) {
	t.Parallel()
	if got := printable("a\x1b[31m\u009b2J\u202eb\n\x7fc"); got != "a[31m2Jbc" {
		t.Errorf(`got %q, want "a[31m2Jbc"`, got)
	}
}
