package machine_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/cli"
	"loxilb/internal/cli/session"
	"loxilb/test/clitest"
)

// TestTables prints testdata/*.json and compares with *.txt next to it, which has the command
// lines.
func TestTables(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{
		"status":  {"get status", "get status --failed --kind=interface", "get status eth0 -o json"},
		"events":  {"get events", "get events -o json", "get event -o yaml"},
		"nodes":   {"get node", "get node -o wide"},
		"cluster": {"get cluster", "get cluster -o wide"},
		"version": {"get lbversion", "get llbversion -o json", "get LBversion -o yaml"},
	} {
		clitest.Golden(t, clitest.NewServer(t, 200, clitest.Answer(t, name)), name, lines...)
	}
}

// TestFilters checks that filters are sent to the server.
func TestFilters(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"eventAttr":[],"statusAttr":[]}`)
	for _, args := range []string{"get events --kind=link,object --limit=3", "get status web --failed --kind=service"} {
		_ = clitest.Run(t, "", s.Args(args)...) // the server has no such object
	}
	if diff := cmp.Diff([]string{
		"GET /netlox/v1/events?kind=link%2Cobject&limit=3",
		"GET /netlox/v1/status/objects?failed=true&kind=service&name=web",
	}, s.Requests); diff != "" {
		t.Errorf("the requests differ (-want +got):\n%s", diff)
	}
}

func TestStatusOfNothing(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"statusAttr":[]}`)
	for args, want := range map[string]string{
		"get status nope":          `object "nope" not found`,
		"get status":               "",
		"get status nope --failed": "",
	} {
		r := clitest.Run(t, "", s.Args(args)...)
		if (r.Code == session.ExitRefused) != (want != "") || !strings.Contains(r.Stderr, want) {
			t.Errorf("%s: got %+v, want %q on stderr, and a refusal exactly if that is not empty", args, r, want)
		}
	}
}

func TestWatchEvents(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	var accept string
	s := &clitest.Server{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accept = r.Header.Get("Accept") + " " + r.URL.RawQuery
		_, _ = io.WriteString(w, ": hello\n\nid: 7\nevent: link\ndata: {\"seq\":7,\"time\":\"2020-01-02T03:04:05Z\",\"kind\":\"link\",\"message\":\"interface eth0 (2) added\"}\n\n"+
			"event: lost\ndata: {\"lost\":3}\n\n")
		w.(http.Flusher).Flush()
		<-hold
		_, _ = io.WriteString(w, "event: end\ndata: {\"message\":\"the token has ended\"}\n\n")
	}))}
	t.Cleanup(s.Close)
	ctx, cancel := context.WithCancel(t.Context())
	out := clitest.Lines{Out: make(chan string, 10)}
	var errs bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- cli.Main(ctx, session.Env{Stdout: out, Stderr: &errs}, s.Args("get events -w --kind=link"))
	}()
	if line := <-out.Out; line != "2020-01-02T03:04:05Z  link       interface eth0 (2) added\n" {
		t.Errorf(`got %q, want "2020-01-02T03:04:05Z  link       interface eth0 (2) added\n"`, line)
	}
	hold <- struct{}{} // ended by the server
	if code := <-done; code != session.ExitUnreachable || !strings.Contains(errs.String(), "3 events lost") ||
		!strings.Contains(errs.String(), "the event stream ended: the token has ended\n") {
		t.Errorf(`got %d %s, want exit code ExitUnreachable, "3 events lost" in errs, `+
			`"the event stream ended: the token has ended\n" in errs`,
			code, errs.String())
	}
	if accept != "text/event-stream kind=link&limit=0" {
		t.Errorf(`got %v, want "text/event-stream kind=link&limit=0"`, accept)
	}
	errs.Reset()
	go func() {
		done <- cli.Main(ctx, session.Env{Stdout: out, Stderr: &errs}, s.Args("get events -w -o json"))
	}()
	if line := <-out.Out; !strings.HasPrefix(line, `{"seq":7`) || strings.Count(line, "\n") != 1 {
		t.Errorf("got %q, want line begins with `{\"seq\":7`, \"\\n\" once in line", line)
	}
	cancel() // ended by the user
	if code := <-done; code != session.ExitOK {
		t.Errorf("got %d %s, want code %d", code, errs.String(), session.ExitOK)
	}
	close(hold)
}
