// Package explain answers GET explain of the REST API.
package explain

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/explain"
	"loxilb/internal/lb"
)

// Explainer answers questions.
type Explainer interface {
	Explain(ctx context.Context, q *explain.Question) (*explain.Answer, error)
}

// Explanations has the operation.
type Explanations struct{ Explainer Explainer }

// patience is how long a request waits for its turn, and its answer.
const patience = 8 * time.Second

// Explain says what would become of a packet, or by which services a client reaches an endpoint.
func (a *Explanations) Explain(w http.ResponseWriter, r *http.Request, p v1.ExplainParams) {
	q, err := question(&p)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	if a.Explainer == nil {
		refuse(w, http.StatusServiceUnavailable, errors.New("this server has no data path to ask"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	answer, err := a.Explainer.Explain(ctx, q)
	if fe := (*lb.FieldError)(nil); errors.As(err, &fe) {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	if err != nil {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(explanation(answer)) // the client is gone if this fails
}

// question reads what is asked: a packet, or a client and an endpoint.
func question(p *v1.ExplainParams) (q *explain.Question, err error) {
	packet, reverse := p.From != "" || p.To != "", p.Client != "" || p.Endpoint != ""
	switch {
	case packet && reverse:
		return nil, lb.NewFieldError("client", p.Client, "does not go with from and to", "from and to, or client and endpoint")
	case reverse:
		q, err = explain.ParseReverse(p.Client, p.Endpoint, p.Proto, p.Interface)
	default:
		q, err = explain.Parse(p.From, p.To, p.Proto, p.Interface)
	}
	if err == nil {
		q.Mark, q.Length = p.Mark, p.Length
	}
	return q, err
}

func explanation(a *explain.Answer) v1.Explanation {
	out := v1.Explanation{
		Question: a.Question, Verdict: string(a.Verdict), Summary: a.Summary, Reason: a.Reason, Hint: a.Hint, Steps: []v1.ExplanationStep{},
		Service: a.Service, Endpoint: text(a.Endpoint), Source: text(a.Source), Interface: a.Interface, Mac: a.MAC, Mtu: a.MTU, Connection: a.Connection,
	}
	if a.Gateway.IsValid() {
		out.Gateway = a.Gateway.String()
	}
	for _, s := range a.Steps {
		out.Steps = append(out.Steps, v1.ExplanationStep{Stage: s.Stage, State: string(s.State), Text: s.Text})
	}
	for i := range a.Paths {
		out.Paths = append(out.Paths, explanation(&a.Paths[i]))
	}
	return out
}

// text is an address and a port; "" if there is none.
func text(at netip.AddrPort) string {
	switch {
	case !at.IsValid():
		return ""
	case at.Port() == 0:
		return at.Addr().String()
	}
	return at.String()
}

// refuse answers with one sentence.
func refuse(w http.ResponseWriter, code int, err error) {
	body := v1.Error{Code: code, Message: err.Error(), Result: err.Error()}
	if fe := (*lb.FieldError)(nil); errors.As(err, &fe) {
		body.Field, body.Value, body.Reason, body.Allowed = fe.Field, fe.Value, fe.Reason, fe.Allowed
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client is gone if this fails
}
