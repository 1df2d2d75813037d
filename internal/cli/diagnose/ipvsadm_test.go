package diagnose_test

import (
	"strings"
	"testing"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"
)

// TestStatsAndRate checks that services and endpoints are printed in ipvsadm's columns.
func TestStatsAndRate(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, clitest.Answer(t, "services"))
	clitest.Golden(t, s, "services", "stats", "stats --exact", "rate", "rate web --sort=bytes --limit=5 -o yaml", "stats 20.20.20.1:80/tcp")
	want := []string{
		"counters=true&endpoints=true", "counters=true&endpoints=true", "endpoints=true", "endpoints=true&limit=5&match=web&sort=bytes",
		"counters=true&endpoints=true&service=20.20.20.1%3A80%2Ftcp",
	}
	for i, r := range s.Requests {
		if got := strings.NewReplacer("&offset=0", "", "&limit=0", "", "counters=false&", "").Replace(r); got != "GET /netlox/v1/status/rates/services?"+want[i] {
			t.Errorf("request %d is %s, want %s", i, r, want[i])
		}
	}
	if r := clitest.Run(t, "", s.Args("rate --limit=-1")...); r.Code != session.ExitUsage || !strings.Contains(r.Stderr, "--limit") {
		t.Errorf(`got %+v, want code %d, "--limit" on stderr`, r, session.ExitUsage)
	}
}

// TestTopPrints checks that top prints consecutive updates without styles to a pipe, and refuses
// invalid flags.
func TestTopPrints(t *testing.T) {
	t.Parallel()
	update := `{"list":` + clitest.Answer(t, "services") +
		`,"total":{"time":"2026-11-23T06:31:19Z","seconds":1,"services":9,"drops":[{"reason":"no-route","packets":7,"rate":0}],"rates":{"connections":49.6}}}`
	update = "event: rates\ndata: " + strings.ReplaceAll(update, "\n", "") + "\n\n"
	s := clitest.NewServer(t, 200, update+update+update)
	r := clitest.Run(t, "", s.Args("top --once web --limit=7")...)
	for _, want := range []string{"9 services", "conn/s      50", "so far: no-route 7", " 20.20.20.1:80/tcp", "2/2", "3.4M"} {
		if !strings.Contains(r.Stdout, want) || strings.Contains(r.Stdout, "\x1b") || strings.Count(r.Stdout, "SERVICE") != 1 || r.Code != session.ExitOK {
			t.Errorf("%q: got %+v, want success with %q and one header line, without escape sequences", want, r, want)
		}
	}
	if !strings.Contains(s.Requests[0], "limit=7") || !strings.Contains(s.Requests[0], "match=web") {
		t.Errorf(`got %v, want "limit=7" in s.Requests[0], "match=web" in s.Requests[0]`, s.Requests[0])
	}
	if r = clitest.Run(t, "", s.Args("top -b -n 2")...); strings.Count(r.Stdout, "SERVICE") != 2 || r.Code != session.ExitOK {
		t.Errorf(`got %+v, want "SERVICE" twice on stdout, code %d`, r, session.ExitOK)
	}
	if r = clitest.Run(t, "", s.Args("top -o json")...); strings.Count(r.Stdout, `"seconds": 1`) != 1 || r.Code != session.ExitOK {
		t.Errorf("got %+v, want `\"seconds\": 1` once on stdout, code %d", r, session.ExitOK)
	}
	for _, args := range []string{
		"top --limit=-1", "top --once --limit=1001", "top -b -n -1", "top --once -n 3", "top --sort=speed --once",
		"rate --sort=speed", "stats --limit=-1", "top a b",
	} {
		if r := clitest.Run(t, "", s.Args(args)...); r.Code != session.ExitUsage || r.Stderr == "" {
			t.Errorf("%s: got %+v, want code %d, a message on stderr", args, r, session.ExitUsage)
		}
	}
}
