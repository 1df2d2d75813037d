package traffic_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/traffic"
	"loxilb/test/apitest"
)

// TestEndConntracks checks that connections that match the filters are ended at the requested rate,
// and none without a filter.
func TestEndConntracks(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"?vip=20.20.20.1":               `{"told":1,"silent":0,"more":false,"next":0}`,
		"?source=2001:db8::/64&rate=50": `{"told":0,"silent":1,"more":false,"next":0}`,
		"?all=true":                     `{"told":1,"silent":1,"more":false,"next":0}`,
		"?state=fini":                   `{"told":0,"silent":0,"more":false,"next":0}`,
	} {
		b := apitest.New(t, nil)
		b.Fake.Conns = apitest.Connections()
		w := b.Call("DELETE", httpapi.BaseURL+"/config/conntrack"+query, "")
		if diff := cmp.Diff(apitest.Normal(t, want), apitest.Normal(t, w.Body.String())); diff != "" {
			t.Errorf("%q: %s", query, diff)
		}
		if rate := map[bool]int{false: traffic.EndRate, true: 50}[strings.Contains(query, "rate")]; b.Fake.EndRate != rate {
			t.Errorf("%q: %d a second, want %d", query, b.Fake.EndRate, rate)
		}
	}
	b := apitest.New(t, nil)
	b.Fake.Conns = append(apitest.Connections(), apitest.Connections()...)
	for from, want := range []string{`{"told":1,"silent":1,"more":true,"next":1}`, `{"told":1,"silent":1,"more":false,"next":0}`} {
		w := b.Call("DELETE", httpapi.BaseURL+"/config/conntrack?all=true&from="+strconv.Itoa(from), "")
		if diff := cmp.Diff(apitest.Normal(t, want), apitest.Normal(t, w.Body.String())); diff != "" {
			t.Errorf("the answer differs (-want +got):\n%s", diff)
		}
	}
	for query, field := range map[string]string{
		"": "", "?rate=5": "", "?all=true&rate=-1": "rate", "?all=true&rate=10001": "rate", "?all=true&from=-1": "from", "?vip=x": "vip",
	} {
		w := b.Call("DELETE", httpapi.BaseURL+"/config/conntrack"+query, "")
		if e := apitest.ProblemOf(t, w); w.Code != 400 || e.Field != field {
			t.Errorf("%q: got %d %+v, want code 400 about %s", query, w.Code, e, field)
		}
	}
}
