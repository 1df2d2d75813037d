package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestDescribe prints testdata/describe.json and compares with describe.txt.
func TestDescribe(t *testing.T) {
	t.Parallel()
	services, err := os.ReadFile("testdata/describe.json")
	if err != nil {
		t.Fatal(err)
	}
	var events bytes.Buffer
	events.WriteString(`{"eventAttr":[`)
	for i := range describedEvents + 2 {
		fmt.Fprintf(&events, `{"seq":%d,"time":"2020-01-02T03:04:05Z","kind":"object","object":"service 20.20.20.1:2020/tcp","message":"service 20.20.20.1:2020/tcp failed %d"},`, i, i)
	}
	events.WriteString(`{"seq":99,"time":"2020-01-02T03:04:05Z","kind":"object","object":"service [2001:db8::9]:53-54/udp/mark=7","message":"applied"}]}`)
	var asked []string
	s := &server{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/netlox/v1/events" {
			asked = append(asked, r.URL.Query().Get("object"))
			_, _ = w.Write(events.Bytes())
			return
		}
		if r.URL.Path == "/netlox/v1/status/objects" {
			_, _ = io.WriteString(w, `{"statusAttr":[
				{"kind":"endpoint","key":"31.31.31.1","state":"failed","since":"2020-01-02T03:04:05Z","error":"there is no route to endpoint 31.31.31.1 (add one)"},
				{"kind":"endpoint","key":"10.9.9.9","state":"failed","error":"another service's"},
				{"kind":"vip","key":"2001:db8::9","state":"failed","error":"VIP 2001:db8::9 cannot be added"}]}`)
			return
		}
		_, _ = w.Write(services)
	}))}
	t.Cleanup(s.Close)
	var got strings.Builder
	for _, args := range []string{"describe lb", "describe lb web", "describe lb [2001:db8::9]:53-54/udp/mark=7", "describe lb 10.0.0.1:0/icmp", "describe lb web -o yaml"} {
		r := run(t, "", s.at(args)...)
		if r.code != ExitOK || r.stderr != "" {
			t.Fatalf("%s: %+v", args, r)
		}
		got.WriteString("$ loxicmd " + args + "\n" + r.stdout + "\n")
	}
	if diff := cmp.Diff([]string{"", "service 20.20.20.1:2020/tcp", "service [2001:db8::9]:53-54/udp/mark=7"}, asked); diff != "" {
		t.Error(diff) // one request, however many services; and none of a server that has no status
	}
	path := filepath.Join("testdata", "describe.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Error(diff)
	}
	if r := run(t, "", s.at("describe lb none")...); r.code != ExitRefused || !strings.Contains(r.stderr, `there is no service "none"`) || r.stdout != "" {
		t.Errorf("%+v", r)
	}
}

func TestStatusOfNothing(t *testing.T) {
	t.Parallel()
	s := newServer(t, 200, `{"statusAttr":[]}`)
	for args, want := range map[string]string{
		"get status nope":          `there is no object "nope"`,
		"get status":               "",
		"get status nope --failed": "",
	} {
		r := run(t, "", s.at(args)...)
		if (r.code == ExitRefused) != (want != "") || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

const connection = `{"destinationIP":"20.20.20.1","sourceIP":"10.0.0.1","destinationPort":80,"sourcePort":%d,"protocol":"tcp","ident":"","conntrackState":"est","conntrackAct":"x","packets":1,"bytes":2,"servName":"web"}`

// lines hands over what is printed as it is printed.
type lines struct{ out chan string }

func (l lines) Write(b []byte) (int, error) {
	l.out <- string(b)
	return len(b), nil
}

// Connections are printed while the server is still at it, however long that takes altogether.
func TestConntrackStreams(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	var slow sync.Once
	s := &server{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"ctAttr":[`+"\n")
		for i := range tableChunk {
			fmt.Fprintf(w, connection+",", i)
		}
		slow.Do(func() { // longer than the time that silence may last
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
		out := lines{make(chan string, 10*tableChunk)}
		done := make(chan int, 1)
		var errs bytes.Buffer
		go func() {
			done <- Main(t.Context(), Env{Stdin: strings.NewReader(""), Stdout: out, Stderr: &errs}, s.at(tc.args))
		}()
		if text := <-out.out; strings.Count(text, "sourcePort")+strings.Count(text, "\n") < tc.first {
			t.Errorf("%s: first printed: %s", tc.args, text)
		}
		select {
		case <-done:
			t.Errorf("%s: ended too early: %s", tc.args, errs.String())
		case more <- struct{}{}:
			if code := <-done; code != ExitOK {
				t.Errorf("%s: %d %s", tc.args, code, errs.String())
			}
		}
	}
}

// An answer that breaks off is said, after what had come.
func TestConntrackBreaksOff(t *testing.T) {
	t.Parallel()
	s := newServer(t, 200, `{"ctAttr":[`+fmt.Sprintf(connection, 1)+",")
	if r := run(t, "", s.at("get ct -o json")...); r.code != ExitUnreachable || !strings.Contains(r.stdout, `"sourcePort": 1`) || !strings.Contains(r.stderr, "broke off") {
		t.Errorf("%+v", r)
	}
	s = newServer(t, 200, `{"result":"Error: not now"}`)
	if r := run(t, "", s.at("get ct")...); r.code != ExitRefused || r.stderr != "Error: Error: not now\n" {
		t.Errorf("%+v", r)
	}
	s = newServer(t, 503, `{"code":503,"message":"not now","result":"not now"}`)
	if r := run(t, "", s.at("get ct")...); r.code != ExitRefused || r.stderr != "Error: not now\n" {
		t.Errorf("%+v", r)
	}
}

func TestWatchEvents(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	var accept string
	s := &server{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accept = r.Header.Get("Accept") + " " + r.URL.RawQuery
		_, _ = io.WriteString(w, ": hello\n\nid: 7\nevent: link\ndata: {\"seq\":7,\"time\":\"2020-01-02T03:04:05Z\",\"kind\":\"link\",\"message\":\"interface eth0 (2) added\"}\n\n"+
			"event: lost\ndata: {\"lost\":3}\n\n")
		w.(http.Flusher).Flush()
		<-hold
	}))}
	t.Cleanup(s.Close)
	ctx, cancel := context.WithCancel(t.Context())
	out := lines{make(chan string, 10)}
	var errs bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- Main(ctx, Env{Stdout: out, Stderr: &errs}, s.at("get events -w --kind=link"))
	}()
	if line := <-out.out; line != "2020-01-02T03:04:05Z  link       interface eth0 (2) added\n" {
		t.Errorf("%q", line)
	}
	hold <- struct{}{} // the server ends it
	if code := <-done; code != ExitUnreachable || !strings.Contains(errs.String(), "3 events were lost") || !strings.Contains(errs.String(), "the events ended: the server closed the connection") {
		t.Errorf("%d %s", code, errs.String())
	}
	if accept != "text/event-stream kind=link&limit=0" {
		t.Error(accept)
	}
	errs.Reset()
	go func() {
		done <- Main(ctx, Env{Stdout: out, Stderr: &errs}, s.at("get events -w -o json"))
	}()
	if line := <-out.out; !strings.HasPrefix(line, `{"seq":7`) || strings.Count(line, "\n") != 1 {
		t.Errorf("%q", line)
	}
	cancel() // the user does
	if code := <-done; code != ExitOK {
		t.Errorf("%d %s", code, errs.String())
	}
	close(hold)
}

func TestWatchConntracks(t *testing.T) {
	t.Parallel()
	var asked string
	s := &server{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Accept") + " " + r.URL.Path + " " + r.URL.RawQuery
		_, _ = io.WriteString(w, ": hello\n\nevent: connection\ndata: {\"time\":\"2020-01-02T03:04:05Z\",\"act\":\"opened\",\"protocol\":\"tcp\",\"client\":\"10.0.0.1:1000\",\"vip\":\"20.20.20.1:80\","+
			"\"source\":\"30.30.30.1:1000\",\"endpoint\":\"31.31.31.1:8080\",\"servName\":\"web\"}\n\nevent: untold\ndata: {\"sampled\":3,\"lost\":2}\n\n"+
			"event: connection\ndata: {\"time\":\"2020-01-02T03:04:06Z\",\"act\":\"ended\",\"protocol\":\"tcp\",\"client\":\"10.0.0.1:1000\",\"vip\":\"20.20.20.1:80\","+
			"\"source\":\"10.0.0.1:1000\",\"endpoint\":\"31.31.31.1:8080\",\"servName\":\"web\",\"reason\":\"reset\",\"closedBy\":\"client\",\"packetsIn\":5,\"bytesIn\":500,\"packetsOut\":4,\"bytesOut\":400,\"oneOf\":16}\n\n")
	}))}
	t.Cleanup(s.Close)
	r := run(t, "", s.at("get ct -w --vip=20.20.20.1 --rate=500")...)
	const want = "2020-01-02T03:04:05Z  opened   tcp   10.0.0.1:1000 > 20.20.20.1:80  31.31.31.1:8080 from 30.30.30.1:1000  web\n" +
		"2020-01-02T03:04:06Z  ended    tcp   10.0.0.1:1000 > 20.20.20.1:80  31.31.31.1:8080  web  reset by client  in 5 packets, 500 bytes  out 4 packets, 400 bytes  (one connection of 16)\n"
	if r.code != ExitUnreachable || r.stdout != want || !strings.Contains(r.stderr, "3 events of connections that were left out, and 2 more, were not told") {
		t.Errorf("%+v", r)
	}
	if !strings.HasPrefix(asked, "text/event-stream /netlox/v1/config/conntrack/events ") || !strings.Contains(asked, "vip=20.20.20.1") || !strings.Contains(asked, "rate=500") {
		t.Error(asked)
	}
}
