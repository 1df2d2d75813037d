package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"loxilb/internal/lb"
)

// web probes by HTTP/1.1, or over TLS by HTTP/1.1 or HTTP/2 as the endpoint prefers. Each probe has
// its own connection: a kept one would continue to work when no new one is accepted.
type web struct {
	q       Question
	url     string
	secrets *secrets // nil: no TLS
}

func newWeb(q Question, files Files) *web {
	w := &web{q: q, url: "http://"}
	if q.Probe.Type == lb.ProbeHTTPS {
		w.url, w.secrets = "https://", newSecrets(q, files)
	}
	w.url += q.To.String() + "/" + strings.TrimPrefix(q.Probe.Request, "/")
	return w
}

// The progress of a probe, for its evidence.
const (
	nothing int32 = iota
	connected
	encrypted
)

func (w *web) Probe(ctx context.Context) (Answer, error) {
	var stage atomic.Int32
	transport, err := w.transport(&stage)
	if err != nil {
		return Answer{}, err
	}
	defer transport.CloseIdleConnections()
	request, err := w.request(ctx, &stage)
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	start := time.Now()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return Answer{}, w.failed(stage.Load(), err)
	}
	defer response.Body.Close()
	a := Answer{What: fmt.Sprintf("status %d", response.StatusCode), Delay: time.Since(start)}
	if !w.isExpected(response.StatusCode) {
		return Answer{}, fmt.Errorf("%s", a.What)
	}
	if want := w.q.Probe.Response; want != "" {
		if err := readUntil(w.q, response.Body, want); err != nil {
			return Answer{}, fmt.Errorf("%s, but %w", a.What, err)
		}
	}
	return a, nil
}

// errEnded is returned for an endpoint that accepts connections but, by HTTP/2, no request.
// http.Transport would reconnect repeatedly, hundreds of times per second.
var errEnded = errors.New("the endpoint ended the connection before it answered")

// transport connects to the endpoint directly and once, regardless of proxies in the environment.
// It follows no redirect and decompresses nothing.
func (w *web) transport(stage *atomic.Int32) (*http.Transport, error) {
	var dialed atomic.Bool
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if dialed.Swap(true) {
				return nil, errEnded
			}
			c, err := dial(ctx, "tcp", w.q)
			if err == nil {
				stage.Store(connected)
			}
			return c, err
		},
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: most, Protocols: new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	if w.secrets != nil {
		t.Protocols.SetHTTP2(true)
		var err error
		if t.TLSClientConfig, err = w.secrets.config(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (w *web) request(ctx context.Context, stage *atomic.Int32) (*http.Request, error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { stage.Store(encrypted) }})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "loxilb")
	request.Host = w.q.Probe.Host
	return request, nil
}

// failed describes how far the probe got.
func (w *web) failed(stage int32, err error) error {
	err = shorten(w.q, err)
	switch {
	case !errors.Is(err, errLate) || stage == nothing:
		return err
	case stage == connected && w.secrets != nil:
		return fmt.Errorf("connected, but no TLS handshake within %v", w.q.Probe.Timeout)
	}
	return fmt.Errorf("connected, but %w", err)
}

// isExpected reports whether the status is an expected one.
func (w *web) isExpected(status int) bool {
	if len(w.q.Probe.Statuses) == 0 {
		return status == http.StatusOK
	}
	for _, r := range w.q.Probe.Statuses {
		if int(r.First) <= status && status <= int(r.Last) {
			return true
		}
	}
	return false
}
