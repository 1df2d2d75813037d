package services_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"loxilb/internal/cli"
	"loxilb/internal/cli/session"
	"loxilb/test/clitest"
)

// services returns a server of the contract, which returns its four services for every request.
func services(t *testing.T) *clitest.Server {
	t.Helper()
	var list []string
	for i, name := range []string{"web", "dns", "web", "10"} {
		list = append(list, fmt.Sprintf(`{"serviceArguments":{"externalIP":"20.20.20.%d","port":%d,"protocol":"tcp","name":%q,"mode":%d,"sel":0,"block":0},
			"endpoints":[{"endpointIP":"31.31.31.%d","targetPort":1,"weight":1}],
			"status":{"kind":"service","key":"20.20.20.%d:%d/tcp","state":%q,"desired":1,"applied":1}}`,
			9+i, 80+i, name, i%2*3, i, 9+i, 80+i, []string{"applied", "failed"}[i/3]))
	}
	return clitest.NewServer(t, 200, `{"lbAttr":[`+strings.Join(list, ",")+`]}`)
}

// TestListed checks that the requested objects are shown, also with a server that does not filter,
// sort and page.
func TestListed(t *testing.T) {
	t.Parallel()
	s := services(t)
	for args, want := range map[string]string{
		"get lb -o name": "lb/20.20.20.9:80/tcp lb/20.20.20.10:81/tcp " +
			"lb/20.20.20.11:82/tcp lb/20.20.20.12:83/tcp",
		"get lb web -o name":                                                  "lb/20.20.20.9:80/tcp lb/20.20.20.11:82/tcp",
		"get lb dns 20.20.20.12:83/tcp -o name":                               "lb/20.20.20.10:81/tcp lb/20.20.20.12:83/tcp",
		"get lb -l mode=dsr -o name":                                          "lb/20.20.20.10:81/tcp lb/20.20.20.12:83/tcp",
		"get lb -l mode=default,name=web --limit=1 -o name":                   "lb/20.20.20.9:80/tcp",
		"get lb --selector state!=applied -o name":                            "lb/20.20.20.12:83/tcp",
		"get lb --field-selector endpointIP=31.31.31.1 -o name":               "lb/20.20.20.10:81/tcp",
		"get lb --state=failed -o name":                                       "lb/20.20.20.12:83/tcp",
		"get lb --vip=20.20.20.10 --endpoint=31.31.31.1 -o name":              "lb/20.20.20.10:81/tcp",
		"get lb --sort-by=-externalIP --limit=2 -o name":                      "lb/20.20.20.12:83/tcp lb/20.20.20.11:82/tcp",
		"get lb --sort-by=name -o jsonpath={.items[*].serviceArguments.name}": "10 dns web web",
		"get lb web -o jsonpath={.lbAttr[0].serviceArguments.port}":           "80",
		"get lb -l mode=dsr -o custom-columns=VIP:.serviceArguments.externalIP,NONE:.nope": "|     VIP     |  NONE  | " +
			"|-------------|--------| | 20.20.20.10 | <none> | | 20.20.20.12 | <none> |",
		"get lb dns --no-headers -o custom-columns=N:.serviceArguments.name,E:.endpoints[*].endpointIP": "| dns | 31.31.31.1 |",
	} {
		got := clitest.Run(t, "", s.Args(args)...)
		if text := strings.Join(strings.Fields(got.Stdout), " "); got.Code != 0 || text != strings.Join(strings.Fields(want), " ") {
			t.Errorf("%s: %s %s, want %s", args, text, got.Stderr, want)
		}
	}
	// Pages are requested up to the last one.
	var names []string
	for next, pages := "", 0; pages == 0 || next != "" && pages < 9; pages++ {
		got := clitest.Run(t, "", s.Args("get lb --limit=3 -o name --continue="+next)...)
		names = append(names, strings.Fields(got.Stdout)...)
		_, next, _ = strings.Cut(strings.TrimSpace(got.Stderr), "--continue=")
	}
	if len(names) != 4 || len(slices.Compact(slices.Sorted(slices.Values(names)))) != 4 {
		t.Errorf("pages: %q", names)
	}
	// apply accepts the output of -o json.
	var list struct {
		LbAttr   []json.RawMessage
		Continue string
	}
	if got := clitest.Run(t, "", s.Args("get lb --limit=2 -o json")...); json.Unmarshal([]byte(got.Stdout), &list) != nil || len(list.LbAttr) != 2 || list.Continue == "" {
		t.Errorf("got %+v, want JSON in got.Stdout, 2 elements in list.LbAttr, list.Continue not empty",
			got)
	}
	if got := clitest.Run(t, "", s.Args("get lb nope dns")...); got.Code != session.ExitRefused ||
		!strings.Contains(got.Stderr, `service "nope" not found: give its name, its VIP, or its key`) || got.Stdout != "" {
		t.Errorf("got %+v, want exit code ExitRefused, "+
			"`service \"nope\" not found: give its name, its VIP, or its key` on stderr, nothing on stdout",
			got)
	}
	// The server gets the whole query, so it can return less.
	s.Requests = nil
	clitest.Run(t, "", s.Args("get lb web -l mode=dsr --sort-by=-port --limit=5")...)
	if len(s.Requests) != 1 || !strings.Contains(s.Requests[0], "limit=5&name=web&selector=serviceArguments.mode+in+%283%29&sortBy=-serviceArguments.port") {
		t.Errorf("got %q, want 1 element, "+
			`"limit=5&name=web&selector=serviceArguments.mode+in+%%283%%29&sortBy=-serviceArguments.port" in s.Requests[0]`,
			s.Requests)
	}
}

// TestCompletion checks that shells complete names of existing objects, fields, and values of
// flags.
func TestCompletion(t *testing.T) {
	t.Parallel()
	s := services(t)
	for args, want := range map[string]string{
		"__complete get lb w":            "web :4",
		"__complete describe lb 20.20.2": "20.20.20.9:80/tcp 20.20.20.10:81/tcp 20.20.20.11:82/tcp 20.20.20.12:83/tcp :4",
		"__complete get lb --sort-by ex": "externalIP :4",
		"__complete get ct --state cl":   "sync-sent sync-ack est",
	} {
		words := s.Args(args)
		last := words[len(strings.Fields(args))-1]
		line := append(append([]string{words[0]}, words[len(strings.Fields(args)):]...), append(words[1:len(strings.Fields(args))-1:len(strings.Fields(args))-1], last)...)
		got := clitest.Run(t, "", line...)
		text := strings.Join(strings.Fields(got.Stdout), " ")
		if !strings.HasPrefix(text, strings.TrimSuffix(want, ":4")) || !strings.Contains(text, ":4") {
			t.Errorf(`%s: got %s %s, want text begins with strings.TrimSuffix(want, ":4"), ":4" in text`,
				args, text, got.Stderr)
		}
	}
}

// TestWatch checks that -w shows existing objects, then the changed objects of events, and
// deletions.
func TestWatch(t *testing.T) {
	t.Parallel()
	var lock sync.Mutex
	state, gone := "pending", false
	more := make(chan string)
	s := &clitest.Server{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/netlox/v1/events" {
			w.(http.Flusher).Flush()
			for object := range more {
				fmt.Fprintf(w, "data: {\"kind\":\"object\",\"object\":%q}\n\n", object)
				w.(http.Flusher).Flush()
			}
			return
		}
		lock.Lock()
		defer lock.Unlock()
		if gone {
			fmt.Fprint(w, `{"statusAttr":[]}`)
			return
		}
		fmt.Fprintf(w,
			`{"lbAttr":[{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp","name":"web"},"endpoints":[],"status":{"kind":"service",`+
				`"key":"20.20.20.1:80/tcp","state":%q}}]}`,
			state)
	}))}
	t.Cleanup(s.Close)
	out := clitest.Lines{Out: make(chan string, 100)}
	done := make(chan int, 1)
	go func() {
		done <- cli.Main(t.Context(), session.Env{Stdout: out, Stderr: &strings.Builder{}}, s.Args("get lb web -w -o wide"))
	}()
	await := func(want string) {
		t.Helper()
		for late := time.After(10 * time.Second); ; {
			select {
			case text := <-out.Out:
				if strings.Contains(text, want) {
					return
				}
			case <-late:
				t.Fatalf("%s is not shown", strconv.Quote(want))
			}
		}
	}
	await("pending")
	lock.Lock()
	state = "applied"
	lock.Unlock()
	more <- "service 30.30.30.1:80/tcp" // an event of another service causes no request
	more <- "service 20.20.20.1:80/tcp"
	await("applied")
	lock.Lock()
	gone = true
	lock.Unlock()
	more <- "service 20.20.20.1:80/tcp"
	await("lb/20.20.20.1:80/tcp is gone")
	close(more)
	if code := <-done; code != session.ExitUnreachable {
		t.Errorf("exit code %d when the server has gone", code)
	}
}
