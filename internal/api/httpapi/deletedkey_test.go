package httpapi_test

import (
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	"loxilb/test/apitest"
)

// TestDeleteNoAddress checks that a DELETE whose path has no address where it needs one is refused.
func TestDeleteNoAddress(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	for path, want := range map[string]string{
		"/config/sessionulcl/ident/u/ulclAddress/other": `ip_address "other" is not an IP address`,
		"/config/bfd/remoteIP/other":                    `remote_ip "other" is not an IP address`,
	} {
		w := b.Call("DELETE", httpapi.BaseURL+path, "")
		if e := apitest.ProblemOf(t, w); w.Code != 400 || !strings.Contains(e.Message, want) {
			t.Errorf("%s: %d %+v, want %s", path, w.Code, e, want)
		}
	}
}
