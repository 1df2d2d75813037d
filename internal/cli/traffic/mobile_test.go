package traffic_test

import (
	"strings"
	"testing"

	"loxilb/test/clitest"
)

// TestFlowsTogether checks that several classifiers are one request, which is made or refused as a
// whole, and that a command without any is refused.
func TestFlowsTogether(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		line, answer, want, request string
	}{
		{
			"create sessionulcl u --ulclArgs=11:10.0.0.1", clitest.Success, "success\n",
			`POST /netlox/v1/config/sessionulcl {"ulclArgument":{"qfi":11,"ulclIP":"10.0.0.1"},"ulclIdent":"u"}`,
		},
		{"create sessionulcl u --ulclArgs=11:10.0.0.1,12:10.0.0.2", `{"result":"Success","changes":[{"kind":"SessionULCL"}]}`, "success\n", `POST /netlox/v1/config/apply`},
		{"create sessionulcl u --ulclArgs=11:10.0.0.1,12:10.0.0.2", `{"result":"Success","changes":[]}`, "unchanged\n", `POST /netlox/v1/config/apply`},
		{"delete sessionulcl u --ulclArgs=10.0.0.1,10.0.0.2", `{"result":"Success","changes":[{"kind":"SessionULCL"}]}`, "success\n", `"remove":true`},
		{"delete sessionulcl u --ulclArgs=10.0.0.1", clitest.Success, "success\n", "DELETE /netlox/v1/config/sessionulcl/ident/u/ulclAddress/10.0.0.1"},
	} {
		s := clitest.NewServer(t, 200, tc.answer)
		r := clitest.Run(t, "", s.Args(tc.line)...)
		if r.Code != 0 || r.Stdout != tc.want || len(s.Requests) != 1 || !strings.Contains(s.Requests[0], tc.request) {
			t.Errorf("%s: %+v, requests %q, want %q by %q", tc.line, r, s.Requests, tc.want, tc.request)
		}
	}
	for _, verb := range []string{"create", "delete"} {
		s := clitest.NewServer(t, 200, clitest.Success)
		if r := clitest.Run(t, "", s.Args(verb+" sessionulcl u --ulclArgs=")...); r.Code == 0 || !strings.Contains(r.Stderr, "--ulclArgs is empty") || len(s.Requests) != 0 {
			t.Errorf("%s without addresses: %+v, requests %q", verb, r, s.Requests)
		}
	}
}
