package traffic_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"loxilb/internal/cli"
	"loxilb/internal/cli/session"
	"loxilb/test/clitest"
)

// tableChunk is the number of rows that are printed at once.
const tableChunk = 1000

const connection = `{"destinationIP":"20.20.20.1","sourceIP":"10.0.0.1","destinationPort":80,"sourcePort":%d,"protocol":"tcp","ident":"",` +
	`"conntrackState":"est","conntrackAct":"x","packets":1,"bytes":2,"servName":"web"}`

// TestGetCT prints testdata/ct.json and compares with ct.txt.
func TestGetCT(t *testing.T) {
	t.Parallel()
	clitest.Golden(t, clitest.NewServer(t, 200, clitest.Answer(t, "ct")), "ct", "get ct", "get conntrack -o wide", "get cts -o json", "get ct -o yaml")
}

// TestConntrackStreams checks that connections are printed while the server still sends, however
// long it takes.
func TestConntrackStreams(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	var slow sync.Once
	s := &clitest.Server{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"ctAttr":[`+"\n")
		for i := range tableChunk {
			fmt.Fprintf(w, connection+",", i)
		}
		slow.Do(func() { // longer than the timeout for a silent server
			for i := range 13 {
				w.(http.Flusher).Flush()
				time.Sleep(100 * time.Millisecond)
				fmt.Fprintf(w, connection+",", i)
			}
		})
		w.(http.Flusher).Flush()
		<-more
		fmt.Fprintf(w, connection+"]}\n", 7)
	}))}
	t.Cleanup(s.Close)
	for _, tc := range []struct {
		args  string
		first int
	}{{"get ct -t 1", tableChunk + 2}, {"get ct -t 1 -o json", 1}, {"get ct -t 1 -o yaml", 1}} {
		out := clitest.Lines{Out: make(chan string, 10*tableChunk)}
		done := make(chan int, 1)
		var errs bytes.Buffer
		go func() {
			done <- cli.Main(t.Context(), session.Env{Stdin: strings.NewReader(""), Stdout: out, Stderr: &errs}, s.Args(tc.args))
		}()
		if text := <-out.Out; strings.Count(text, "sourcePort")+strings.Count(text, "\n") < tc.first {
			t.Errorf("%s: first printed: %s", tc.args, text)
		}
		select {
		case <-done:
			t.Errorf("%s: ended too early: %s", tc.args, errs.String())
		case more <- struct{}{}:
			if code := <-done; code != session.ExitOK {
				t.Errorf("%s: got %d %s, want code %d", tc.args, code, errs.String(), session.ExitOK)
			}
		}
	}
}

// TestConntrackBreaksOff checks that an incomplete response is reported after the rows that
// arrived.
func TestConntrackBreaksOff(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"ctAttr":[`+fmt.Sprintf(connection, 1)+",")
	if r := clitest.Run(t, "", s.Args("get ct -o json")...); r.Code != session.ExitUnreachable ||
		!strings.Contains(r.Stdout, `"sourcePort": 1`) || !strings.Contains(r.Stderr, "ended early") {
		t.Errorf("got %+v, want exit code ExitUnreachable, `\"sourcePort\": 1` on stdout, \"ended early\" on stderr",
			r)
	}
	s = clitest.NewServer(t, 200, `{"result":"Error: not now"}`)
	if r := clitest.Run(t, "", s.Args("get ct")...); r.Code != session.ExitRefused || r.Stderr != "Error: Error: not now\n" {
		t.Errorf(`got %+v, want code %d, stderr == "Error: Error: not now\n"`, r, session.ExitRefused)
	}
	s = clitest.NewServer(t, 503, `{"code":503,"message":"not now","result":"not now"}`)
	if r := clitest.Run(t, "", s.Args("get ct")...); r.Code != session.ExitRefused || r.Stderr != "Error: not now\n" {
		t.Errorf(`got %+v, want code %d, stderr == "Error: not now\n"`, r, session.ExitRefused)
	}
}

func TestWatchConntracks(t *testing.T) {
	t.Parallel()
	var asked string
	s := &clitest.Server{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Accept") + " " + r.URL.Path + " " + r.URL.RawQuery
		_, _ = io.WriteString(w,
			": hello\n\nevent: connection\ndata: {\"time\":\"2020-01-02T03:04:05Z\",\"act\":\"opened\",\"protocol\":\"tcp\",\"client\":\"10.0.0.1:1000\","+
				"\"vip\":\"20.20.20.1:80\","+
				"\"source\":\"30.30.30.1:1000\",\"endpoint\":\"31.31.31.1:8080\",\"servName\":\"web\"}\n\nevent: untold\ndata: {\"sampled\":3,\"lost\":2}\n\n"+
				"event: connection\ndata: {\"time\":\"2020-01-02T03:04:06Z\",\"act\":\"ended\",\"protocol\":\"tcp\",\"client\":\"10.0.0.1:1000\",\"vip\":\"20.20.20.1:80\","+
				"\"source\":\"10.0.0.1:1000\",\"endpoint\":\"31.31.31.1:8080\",\"servName\":\"web\",\"reason\":\"reset\",\"closedBy\":\"client\","+
				"\"packetsIn\":5,\"bytesIn\":500,\"packetsOut\":4,\"bytesOut\":400,\"oneOf\":16}\n\n")
	}))}
	t.Cleanup(s.Close)
	r := clitest.Run(t, "", s.Args("get ct -w --vip=20.20.20.1 --rate=500")...)
	const want = "2020-01-02T03:04:05Z  opened   tcp   10.0.0.1:1000 > 20.20.20.1:80  31.31.31.1:8080 from 30.30.30.1:1000  web\n" +
		"2020-01-02T03:04:06Z  ended    tcp   10.0.0.1:1000 > 20.20.20.1:80  31.31.31.1:8080  web  reset by client  in 5 packets, 500 bytes  out 4 " +
		"packets, 400 bytes  (sampled 1 of 16 connections)\n"
	if r.Code != session.ExitUnreachable || r.Stdout != want || !strings.Contains(r.Stderr, "3 events not shown because of sampling, and 2 lost") {
		t.Errorf("got %+v, want exit code ExitUnreachable, the events on stdout, and the numbers of others on stderr", r)
	}
	if !strings.HasPrefix(asked, "text/event-stream /netlox/v1/config/conntrack/events ") || !strings.Contains(asked, "vip=20.20.20.1") || !strings.Contains(asked, "rate=500") {
		t.Errorf(`got %v, want asked begins with "text/event-stream /netlox/v1/config/conntrack/events ", `+
			`"vip=20.20.20.1" in asked, "rate=500" in asked`,
			asked)
	}
}
