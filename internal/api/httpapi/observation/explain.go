package observation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/diagnose/explain"
	"loxilb/internal/lb"
)

// Explainer explains how packets are handled.
type Explainer interface {
	Explain(ctx context.Context, q *explain.Question) (*explain.Answer, error)
}

// patience bounds how long a request waits for its turn and its answer.
const patience = 8 * time.Second

// Explain replies with the handling of a packet, or with the services by which a client reaches an
// endpoint.
func (a *API) Explain(w http.ResponseWriter, r *http.Request, p v1.ExplainParams) {
	q, err := question(&p)
	if err != nil {
		rest.RefuseError(http.StatusBadRequest, err).Write(w)
		return
	}
	if a.Explainer == nil {
		rest.RefuseError(http.StatusServiceUnavailable, errors.New("this server has no data path to ask")).Write(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	said, err := a.Explainer.Explain(ctx, q)
	if fe := (*lb.FieldError)(nil); errors.As(err, &fe) {
		rest.RefuseError(http.StatusBadRequest, err).Write(w)
		return
	}
	if err != nil {
		w.Header().Set("Retry-After", "1")
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("the packet was not explained within %v, as the machine is busy: try again", patience)
		}
		rest.RefuseError(http.StatusServiceUnavailable, err).Write(w)
		return
	}
	rest.JSON(w, explanation(said))
}

// question parses the question: a packet, or a client and an endpoint.
func question(p *v1.ExplainParams) (q *explain.Question, err error) {
	packet, reverse := p.From != "" || p.To != "", p.Client != "" || p.Endpoint != ""
	switch {
	case packet && reverse:
		return nil, lb.NewFieldError("client", p.Client, "cannot be combined with from and to", "from and to, or client and endpoint")
	case reverse:
		q, err = explain.ParseReverse(p.Client, p.Endpoint, p.Proto, p.Interface)
	default:
		q, err = explain.Parse(p.From, p.To, p.Proto, p.Interface)
	}
	if err != nil {
		return nil, err
	}
	q.Mark, q.Length = p.Mark, p.Length
	if err := q.SetConnectionID(p.ConnectionID, p.Proto); err != nil {
		return nil, err
	}
	return q, q.SetTEID(p.Teid, p.Proto)
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

// text formats an address and a port; "" if it is invalid.
func text(at netip.AddrPort) string {
	switch {
	case !at.IsValid():
		return ""
	case at.Port() == 0:
		return at.Addr().String()
	}
	return at.String()
}
