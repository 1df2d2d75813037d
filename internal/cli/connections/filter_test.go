package connections_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/cli/clitest"
)

func TestConntrackFilters(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"ctAttr":[]}`)
	for _, args := range []string{
		"get ct --servName=web --vip=20.20.20.1 --proto=tcp --limit=5",
		"get ct --service=20.20.20.1:80/tcp --state=est --source=10.0.0.0/8 --endpoint=[::1]:80 --offset=7",
	} {
		_ = clitest.Run(t, "", s.At(args)...) // the answer is that of connections
	}
	want := []string{
		"GET /netlox/v1/config/conntrack/all?limit=5&offset=0&protocol=tcp&servName=web&vip=20.20.20.1",
		"GET /netlox/v1/config/conntrack/all?endpoint=%5B%3A%3A1%5D%3A80&offset=7&service=20.20.20.1%3A80%2Ftcp&source=10.0.0.0%2F8&state=est",
	}
	for i, r := range s.Requests {
		// the order of parameters says nothing
		path, query, _ := strings.Cut(r, "?")
		parts := strings.Split(query, "&")
		slices.Sort(parts)
		s.Requests[i] = path + "?" + strings.Join(parts, "&")
	}
	if diff := cmp.Diff(want, s.Requests); diff != "" {
		t.Error(diff)
	}
}
