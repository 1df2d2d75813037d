package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTables prints testdata/*.json and compares with *.txt beside it, which has the command lines.
func TestTables(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		answer string
		args   []string
	}{
		{"lb", []string{"get lb", "get lb -o wide", "get loadbalancers --servName=web", "get lbs --servName=dns -o json", "get lb -o yaml --servName=dns", "get loadbalancer --servName=none"}},
		{"empty", []string{"get lb", "get lb -o wide", "get lb -o json", "get lb -o yaml"}},
		{"ct", []string{"get ct", "get conntrack -o wide", "get cts -o json", "get ct -o yaml"}},
		{"status", []string{"get status", "get status --failed --kind=interface", "get status eth0 -o json"}},
		{"events", []string{"get events", "get events -o json", "get event -o yaml"}},
		{"version", []string{"get lbversion", "get llbversion -o json", "get LBversion -o yaml"}},
	} {
		path := filepath.Join("testdata", tc.answer)
		answer, err := os.ReadFile(path + ".json")
		if err != nil {
			t.Fatal(err)
		}
		s := newServer(t, 200, string(answer))
		var got strings.Builder
		for _, args := range tc.args {
			r := run(t, "", s.at(args)...)
			if r.code != ExitOK || r.stderr != "" {
				t.Fatalf("%s: %+v", args, r)
			}
			got.WriteString("$ loxicmd " + args + "\n" + r.stdout + "\n")
		}
		if *update {
			if err := os.WriteFile(path+".txt", []byte(got.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s: %s", tc.answer, diff)
		}
	}
}

func TestConntrackFilters(t *testing.T) {
	t.Parallel()
	s := newServer(t, 200, `{"ctAttr":[]}`)
	for _, args := range []string{
		"get ct --servName=web --vip=20.20.20.1 --proto=tcp --limit=5",
		"get ct --service=20.20.20.1:80/tcp --state=est --source=10.0.0.0/8 --endpoint=[::1]:80 --offset=7",
		"get events --kind=link,object --limit=3",
		"get status web --failed --kind=service",
	} {
		_ = run(t, "", s.at(args)...) // the answer is that of connections
	}
	want := []string{
		"GET /netlox/v1/config/conntrack/all?limit=5&offset=0&protocol=tcp&servName=web&vip=20.20.20.1",
		"GET /netlox/v1/config/conntrack/all?endpoint=%5B%3A%3A1%5D%3A80&limit=0&offset=7&service=20.20.20.1%3A80%2Ftcp&source=10.0.0.0%2F8&state=est",
		"GET /netlox/v1/events?kind=link%2Cobject&limit=3",
		"GET /netlox/v1/status/objects?failed=true&kind=service&name=web",
	}
	for i, r := range s.requests {
		// the order of parameters says nothing
		path, query, _ := strings.Cut(r, "?")
		parts := strings.Split(query, "&")
		slices.Sort(parts)
		s.requests[i] = path + "?" + strings.Join(parts, "&")
	}
	if diff := cmp.Diff(want, s.requests); diff != "" {
		t.Error(diff)
	}
}
