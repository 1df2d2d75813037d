package observation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/observation"
	"loxilb/internal/diagnose/explain"
)

// fixedAnswer gives the same answer to every question, and records the last one.
type fixedAnswer struct {
	question *explain.Question
	err      error
}

func (a *fixedAnswer) Explain(_ context.Context, q *explain.Question) (*explain.Answer, error) {
	a.question = q
	if a.err != nil {
		return nil, a.err
	}
	return &explain.Answer{
		Question: "tcp", Verdict: explain.Forwarded, Summary: "forwarded", Endpoint: netip.MustParseAddrPort("31.31.31.1:80"),
		Gateway: netip.MustParseAddr("31.31.31.1"), Steps: []explain.Step{{Stage: "way", State: explain.OK, Text: "leaves"}},
		Paths: []explain.Answer{{Verdict: explain.Dropped}},
	}, nil
}

func TestExplain(t *testing.T) {
	t.Parallel()
	a := &fixedAnswer{}
	call := func(p v1.ExplainParams) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		(&observation.API{Options: observation.Options{Explainer: a}}).Explain(w, httptest.NewRequest("GET", "/", nil), p)
		return w
	}
	w := call(v1.ExplainParams{From: "1.1.1.1:7", To: "10.0.0.1:80", Proto: "udp", Interface: "eth0", Mark: 3, Length: 100})
	want := &explain.Question{From: netip.MustParseAddrPort("1.1.1.1:7"), To: netip.MustParseAddrPort("10.0.0.1:80"), Protocol: 17, Interface: "eth0", Mark: 3, Length: 100}
	if diff := cmp.Diff(want, a.question, cmp.Comparer(func(x, y netip.AddrPort) bool { return x == y })); diff != "" {
		t.Errorf("the question differs (-want +got):\n%s", diff)
	}
	var got v1.Explanation
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
		t.Fatalf("got %v %v, want no error, code 200", w.Code, err)
	}
	if diff := cmp.Diff(v1.Explanation{
		Question: "tcp", Verdict: "forwarded", Summary: "forwarded", Endpoint: "31.31.31.1:80", Gateway: "31.31.31.1",
		Steps: []v1.ExplanationStep{{Stage: "way", State: "ok", Text: "leaves"}}, Paths: []v1.Explanation{{Verdict: "dropped", Steps: []v1.ExplanationStep{}}},
	}, got); diff != "" {
		t.Errorf("the result differs (-want +got):\n%s", diff)
	}
	if call(v1.ExplainParams{Client: "1.1.1.1", Endpoint: "31.31.31.1"}); !a.question.Reverse || a.question.To.Port() != 0 {
		t.Errorf("got %+v, want a.question.Reverse, a.question.To.Port() == 0", a.question)
	}

	for sentence, p := range map[string]v1.ExplainParams{
		`from is missing (allowed: IP or IP:PORT, IPv6 with a port in brackets)`:                              {},
		`client "1.1.1.1" cannot be combined with from and to (allowed: from and to, or client and endpoint)`: {From: "1.1.1.1", Client: "1.1.1.1"},
		`endpoint is missing (allowed: IP or IP:PORT, IPv6 with a port in brackets)`:                          {Client: "1.1.1.1"},
		`connectionID "0g" is not a connection ID (allowed: 1 to 20 bytes, two hexadecimal digits each)`: {
			From: "1.1.1.1", To: "10.0.0.1:443", ConnectionID: "0g",
		},
	} {
		w := call(p)
		var e v1.Error
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != 400 || e.Message != sentence {
			t.Errorf("%+v: got %d %s, want code 400 with the sentence %q", p, w.Code, w.Body, sentence)
		}
	}
	a.err = explain.ErrBusy
	if w := call(v1.ExplainParams{From: "1.1.1.1", To: "10.0.0.1:80"}); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf(`got %d %s, want code 503, a header Retry-After`, w.Code, w.Body)
	}
	a.err = fmt.Errorf("look up the route: %w", context.DeadlineExceeded)
	if w := call(v1.ExplainParams{From: "1.1.1.1", To: "10.0.0.1:80"}); w.Code != 503 || !strings.Contains(w.Body.String(), "not explained within 8s, as the machine is busy") {
		t.Errorf(`got %d %s, want code 503, and that the machine is busy`, w.Code, w.Body)
	}
}
