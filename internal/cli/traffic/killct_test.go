package traffic_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"
)

// TestKillCT checks that requests continue where the last one ended, and that the totals cover all
// of them.
func TestKillCT(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"wide": "36 connections ended, 13 of them with a RST or ABORT to both sides\n",
		"json": "{\"told\": 13, \"silent\": 23}\n",
		"yaml": "told: 13\nsilent: 23\n",
	} {
		t.Run(output, func(t *testing.T) {
			t.Parallel()
			answers := map[string]string{
				"0": `{"told":3,"silent":2,"more":true,"next":7}`,
				"7": `{"told":0,"silent":1,"more":true,"next":9}`,
				"9": `{"told":10,"silent":20,"more":false,"next":0}`,
			}
			s := &clitest.Server{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				q := r.URL.Query()
				if r.Method != http.MethodDelete || q.Get("source") != "10.0.0.1" || q.Get("rate") != "50" {
					t.Errorf("got %s %s, want r.Method == http.MethodDelete, "+
						`q.Get("source") == "10.0.0.1", q.Get("rate") == "50"`,
						r.Method, r.URL)
				}
				_, _ = io.WriteString(w, answers[q.Get("from")])
			}))}
			t.Cleanup(s.Close)
			r := clitest.Run(t, "", s.Args("kill ct --source=10.0.0.1 --rate=50 -o "+output)...)
			if r.Code != session.ExitOK || r.Stdout != want {
				t.Errorf("got %+v, want exit code %d and %q on stdout", r, session.ExitOK, want)
			}
		})
	}
}
