package diagnose_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"
)

// TestExplain checks that the server's lines are printed in order, with the verdict last.
func TestExplain(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"packet", "reverse"} {
		s := clitest.NewServer(t, 200, clitest.Answer(t, name))
		clitest.Golden(t, s, name, "explain --from 100.100.100.1 --to 20.20.20.1:80", "explain --from 100.100.100.1 --to 20.20.20.1:80 -o json")
	}
}

// TestExitStatus checks that the exit status reports whether the packet arrives, also with -o json.
func TestExitStatus(t *testing.T) {
	t.Parallel()
	const ok, failed = `"steps":[{"stage":"way","state":"warning","text":"x"}]`, `"steps":[{"stage":"mtu","state":"failed","text":"x"}]`
	for body, want := range map[string]int{
		`"verdict":"forwarded",` + ok: session.ExitOK, `"verdict":"local",` + ok: session.ExitOK, `"verdict":"kernel",` + ok: session.ExitOK,
		`"verdict":"challenged",` + ok: session.ExitOK, `"verdict":"reached",` + failed: session.ExitOK,
		`"verdict":"forwarded",` + failed: session.ExitNo, `"verdict":"dropped",` + ok: session.ExitNo, `"verdict":"refused",` + ok: session.ExitNo,
		`"verdict":"unreached",` + ok: session.ExitNo,
	} {
		s := clitest.NewServer(t, 200, `{"question":"q","summary":"s",`+body+`}`)
		for _, format := range []string{"", " -o json"} {
			if got := clitest.Run(t, "", s.Args("explain --from 1.1.1.1 --to 2.2.2.2:80"+format)...); got.Code != want || got.Stdout == "" || got.Stderr != "" {
				t.Errorf("%s%s: %+v, want %d", body, format, got, want)
			}
		}
	}
}

func TestAsks(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"question":"","verdict":"","summary":"","steps":[]}`)
	for _, args := range []string{
		"explain --from 1.1.1.1:7 --to [2001:db8::1]:80 --proto udp --interface eth0 --mark 7 --length 1400",
		"explain --client 1.1.1.1 --endpoint 31.31.31.1:80",
		"explain --from 1.1.1.1 --to 20.20.20.1:443 --connection-id 000b01020304",
		"explain --from 1.1.1.1 --to 20.20.20.1:2152 --teid 0x12ab",
	} {
		_ = clitest.Run(t, "", s.Args(args)...)
	}
	if diff := cmp.Diff([]string{
		"GET /netlox/v1/explain?from=1.1.1.1%3A7&interface=eth0&length=1400&mark=7&proto=udp&to=%5B2001%3Adb8%3A%3A1%5D%3A80",
		"GET /netlox/v1/explain?client=1.1.1.1&endpoint=31.31.31.1%3A80&length=0&mark=0",
		"GET /netlox/v1/explain?connectionID=000b01020304&from=1.1.1.1&length=0&mark=0&to=20.20.20.1%3A443",
		"GET /netlox/v1/explain?from=1.1.1.1&length=0&mark=0&teid=0x12ab&to=20.20.20.1%3A2152",
	}, s.Requests); diff != "" {
		t.Errorf("the requests differ (-want +got):\n%s", diff)
	}
}
