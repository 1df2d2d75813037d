package services_test

import (
	"strings"
	"testing"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"

	"github.com/google/go-cmp/cmp"
)

const endpointList = `{"Attr":[
{"hostName":"31.31.31.1","name":"31.31.31.1_http_80","inactiveReTries":3,"probeType":"http","probeReq":"/health","probeResp":"","probeDuration":1,"probePort":80,"probeInterval":"500ms",
 "minDelay":"","avgDelay":"","maxDelay":"","currState":"nok","since":"2026-01-02T03:04:05Z","evidence":"http 31.31.31.1:80: status 500,\n3 of 3","services":["20.20.20.1:80/tcp","20.20.20.2:80/tcp"],
 "history":[{"time":"2026-01-02T03:04:01Z","from":"unknown","to":"ok","evidence":"a"},{"time":"2026-01-02T03:04:03Z","from":"ok","to":"nok","evidence":"b"},{"time":"2026-01-02T03:04:05Z","from":"nok","to":"nok","evidence":"c"}]},
{"hostName":"32.32.32.1","name":"mine","inactiveReTries":2,"probeType":"ping","probeReq":"","probeResp":"","probeDuration":60,"probePort":0,
 "minDelay":"1ms","avgDelay":"2ms","maxDelay":"3ms","currState":"ok","object":true}]}`

func TestGetEndpoint(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, endpointList)
	for _, tc := range []struct{ args, want string }{
		{"get ep", `
|    HOST    |        NAME        |    PTYPE     | PORT | DURATION | RETRIES | AVGDELAY | STATE |        SINCE         |                 EVIDENCE                 |
|------------|--------------------|--------------|------|----------|---------|----------|-------|----------------------|------------------------------------------|
| 31.31.31.1 | 31.31.31.1_http_80 | http:/health |   80 | 500ms    |       3 |          | nok   | 2026-01-02 03:04 | status 500,.3 of 3   |
| 32.32.32.1 | mine               | ping:        |    0 |      60s |       2 | 2ms      | ok    | -                    | -                                        |
`},
		{"get endpoints --name=mine -o wide", `
|    HOST    | NAME | PTYPE | PORT | DURATION | RETRIES | MINDELAY | AVGDELAY | MAXDELAY | STATE | SINCE | EVIDENCE |
|------------|------|-------|------|----------|---------|----------|----------|----------|-------|-------|----------|
| 32.32.32.1 | mine | ping: |    0 |      60s |       2 | 1ms      | 2ms      | 3ms      | ok    | -     | -        |
`},
	} {
		got := clitest.Run(t, "", s.Args(tc.args)...)
		if got.Code != session.ExitOK {
			t.Errorf("%s: got %+v, want exit code ExitOK", tc.args, got)
		}
		if diff := cmp.Diff(squeeze(tc.want), squeeze(got.Stdout)); diff != "" {
			t.Errorf("%s:\n%s", tc.args, diff)
		}
	}
	// In wide form, the newest change comes first, and services are listed below each other.
	wide := strings.Split(clitest.Run(t, "", s.Args("get ep -o wide --name=31.31.31.1")...).Stdout, "\n")
	for i, want := range []string{
		"| 20.20.20.1:80/tcp | 2026-01-02 03:04 nok: c |", "| 20.20.20.2:80/tcp | 2026-01-02 03:04 nok: b |", "| 2026-01-02 03:04 ok: a |",
	} {
		if got := squeeze(wide[2+i]); !strings.HasSuffix(got, want) {
			t.Errorf("line %d is %s, want %s", i, got, want)
		}
	}
	if got := clitest.Run(t, "", s.Args("get ep -o json --name=31.31.31.1")...); !strings.Contains(got.Stdout, `"history"`) || strings.Contains(got.Stdout, "mine") {
		t.Errorf("got %+v, want `\"history\"` on stdout, no \"mine\" on stdout", got)
	}
	// Scripts for the existing loxilb read seconds, and its three words for a state.
	old := session.Env{Getenv: func(name string) string { return map[string]string{"LOXILB_COMPAT": "1"}[name] }}
	unknown := clitest.NewServer(t, 200, strings.Replace(endpointList, `"currState":"nok"`, `"currState":"ok","observedState":"unknown"`, 1))
	got := squeeze(clitest.RunIn(t, old, "", unknown.Args("get ep")...).Stdout)
	for _, want := range []string{"| 31.31.31.1 | 31.31.31.1_http_80 | http:/health | 80 | 1 | 3 | | | | ok |", "| 32.32.32.1 | mine | ping: | 0 | 60 | 2 | 1ms | 2ms | 3ms | ok |"} {
		if !strings.Contains(got, want) {
			t.Errorf("LOXILB_COMPAT=1: got %s, want %s", got, want)
		}
	}
	exists := clitest.NewServer(t, 409, `{"code":409,"message":"endpoint x exists already with the same content","result":"x"}`)
	if got := clitest.Run(t, "", exists.Args("create ep 31.31.31.1")...); got != (clitest.Result{Stdout: "unchanged\n"}) {
		t.Errorf(`got %+v, want "unchanged\n" on stdout`, got)
	}
}

// squeeze replaces repeated spaces and dashes by one.
func squeeze(s string) string {
	for _, twice := range []string{"  ", "--"} {
		for strings.Contains(s, twice) {
			s = strings.ReplaceAll(s, twice, twice[1:])
		}
	}
	return strings.TrimSpace(s)
}
