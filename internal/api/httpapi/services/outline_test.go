package services

import (
	"net/http"
	"runtime"
	"strings"
	"testing"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb"
)

// TestElementsOfBody checks that a body with too many elements is refused before it is decoded, as
// small elements use much memory.
func TestElementsOfBody(t *testing.T) {
	many := strings.Repeat("{},", 3<<20) + "{}"
	for name, body := range map[string]string{
		"services":  `{"lbAttr":[` + many + `]}`,
		"endpoints": `{"lbAttr":[{"endpoints":[` + many + `]}]}`,
		"prefixes":  `{"allowedSources":[` + many + `]}`,
		"behind":    `{"allowedSources":[{}],"lbAttr":[` + strings.Repeat("{},", 1<<18) + `{}]}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, p := newCodec(false).decodeServices([]byte(body))
		if p == nil || p.Body.Code != http.StatusRequestEntityTooLarge || !strings.Contains(p.Body.Message, "more than the") {
			t.Errorf("%s: got %+v, want p != nil, p.Body.Code == http.StatusRequestEntityTooLarge, "+
				`"more than the" in the message`,
				name, p)
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 10*uint64(len(body)) {
			t.Errorf("%s: %d bytes for a body of %d", name, got, len(body))
		}
	}
	// Quoted braces are no elements, and bodies of the largest allowed size are decoded.
	for _, body := range []string{
		`{"serviceArguments":{"name":"` + strings.Repeat(`{},[\"`, 1<<19) + `"}}`,
		`{"lbAttr":[` + strings.Repeat("{},", lb.MaxServices-1) + `{}]}`,
		`{"lbAttr":[{"endpoints":[` + strings.Repeat("{},", lb.MaxEndpoints) + `{}]}]}`,
		`{"allowedSources" : [` + strings.Repeat(`{"prefix":"1.2.3.4"},`, lb.MaxSourcesPerService-1) + `{}]}`,
	} {
		if o := rest.OutlineOf([]byte(body), rest.PartSize); o.TooMany() != nil {
			t.Errorf("%.40s: %s", body, o.TooMany().Body.Message)
		}
	}
}
