package machine_test

import (
	"strings"
	"testing"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"
)

// TestDrops checks that get drops leaves out reasons without packets, unless they are named, and
// the cause, unless the table is wide.
func TestDrops(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"dropAttr":[
		{"reason":"no-route","packets":7,"meaning":"no route to the endpoint or the client, or the endpoint is a VIP","cause":"no route","remedy":"add it"},
		{"reason":"too-big","packets":0,"meaning":"too large","cause":"MTU","remedy":"nothing"}]}`)
	for _, tc := range []struct{ args, want string }{
		{"get drops", "|  REASON  | PACKETS |                  MEANING                   | REMEDY |\n" +
			"|----------|---------|--------------------------------------------|--------|\n" +
			"| no-route |       7 | no route to the endpoint or the client, or | add it |\n" +
			"|          |         | the endpoint is a VIP                      |        |\n"},
		{"get drop too-big -o wide", "| REASON  | PACKETS |  MEANING  | CAUSE | REMEDY  |\n" +
			"|---------|---------|-----------|-------|---------|\n" +
			"| too-big |       0 | too large | MTU   | nothing |\n"},
	} {
		if got := clitest.Run(t, "", s.Args(tc.args)...); got != (clitest.Result{Stdout: tc.want}) {
			t.Errorf("%s: exit code %d, want 0 and:\n%s\ngot:\n%s%s", tc.args, got.Code, tc.want, got.Stdout, got.Stderr)
		}
	}
	if got := clitest.Run(t, "", s.Args("get drops --all")...); !strings.Contains(got.Stdout, "too-big") {
		t.Errorf("get drops --all does not show the reason without packets:\n%s%s", got.Stdout, got.Stderr)
	}
	if got := clitest.Run(t, "", s.Args("get drops no-rute")...); got.Code != session.ExitRefused || !strings.Contains(got.Stderr, `"no-rute"`) {
		t.Errorf("an unknown reason: exit code %d, %s", got.Code, got.Stderr)
	}
}
