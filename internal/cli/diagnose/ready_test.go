package diagnose_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"
)

// TestReady checks that the exit code reports whether packets are balanced, and that standard error
// has the reason if not.
func TestReady(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, http.StatusOK, "ready\n")
	for _, test := range []struct {
		code     int
		body     string
		exit     int
		out, err string
	}{
		{http.StatusOK, "ready\n", session.ExitOK, "ready\n", ""},
		{http.StatusServiceUnavailable, "3 of 7 services are applied\n", session.ExitRefused, "", "Error: 3 of 7 services are applied\n"},
		{http.StatusNotFound, "", session.ExitRefused, "", "Error: the server answered 404 Not Found\n"},
	} {
		s.Code, s.Body = test.code, test.body
		got := clitest.Run(t, "", s.Args("ready")...)
		if got.Code != test.exit || got.Stdout != test.out || got.Stderr != test.err {
			t.Errorf("got %d %q: %+v, want exit code %d, %q on stdout and %q on stderr", test.code, test.body, got, test.exit, test.out, test.err)
		}
	}
	if !slices.Equal(s.Requests, slices.Repeat([]string{"GET /readyz"}, 3)) {
		t.Errorf("the requests were %q", s.Requests)
	}
	s.Close()
	if got := clitest.Run(t, "", s.Args("ready")...); got.Code != session.ExitUnreachable || !strings.Contains(got.Stderr, "cannot reach the server") {
		t.Errorf("without a server: %+v", got)
	}
}
