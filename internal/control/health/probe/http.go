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

// httpProber probes by HTTP/1.1, or over TLS by HTTP/1.1 or HTTP/2 as the endpoint prefers. Each
// probe opens a connection: an existing one would continue to work after the endpoint stops
// accepting new ones.
type httpProber struct {
	spec    Spec
	url     string
	secrets *tlsFiles // nil: no TLS
}

func newHTTP(spec Spec, files Files) *httpProber {
	w := &httpProber{spec: spec, url: "http://"}
	if spec.Probe.Type == lb.ProbeHTTPS {
		w.url, w.secrets = "https://", newTLSFiles(spec, files)
	}
	w.url += spec.To.String() + "/" + strings.TrimPrefix(spec.Probe.Request, "/")
	return w
}

// The stages of a probe. The error of a timeout says which one was reached.
const (
	notConnected int32 = iota
	connected
	requestSent
)

func (w *httpProber) Probe(ctx context.Context) (Answer, error) {
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
		return Answer{}, w.describeError(stage.Load(), err)
	}
	defer response.Body.Close()
	a := Answer{What: fmt.Sprintf("status %d", response.StatusCode), Delay: time.Since(start)}
	if !w.isExpected(response.StatusCode) {
		return Answer{}, fmt.Errorf("%s", a.What)
	}
	if want := w.spec.Probe.Response; want != "" {
		if err := readUntil(w.spec, response.Body, want); err != nil {
			return Answer{}, fmt.Errorf("%s, but %w", a.What, err)
		}
	}
	return a, nil
}

// errEnded is returned if an endpoint accepts connections but, by HTTP/2, no request. Without it,
// http.Transport would reconnect hundreds of times per second.
var errEnded = errors.New("the endpoint ended the connection before it answered")

// transport connects to the endpoint directly and once, regardless of proxies in the environment.
// It follows no redirect and decompresses nothing.
func (w *httpProber) transport(stage *atomic.Int32) (*http.Transport, error) {
	var dialed atomic.Bool
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if dialed.Swap(true) {
				return nil, errEnded
			}
			c, err := dial(ctx, "tcp", w.spec)
			if err == nil {
				stage.Store(connected)
			}
			return c, err
		},
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxSearched, Protocols: new(http.Protocols),
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

func (w *httpProber) request(ctx context.Context, stage *atomic.Int32) (*http.Request, error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { stage.Store(requestSent) }})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "loxilb")
	request.Host = w.spec.Probe.Host
	return request, nil
}

// describeError returns a short error that also says which stage a probe that timed out has
// reached.
func (w *httpProber) describeError(stage int32, err error) error {
	err = shorten(w.spec, err)
	switch {
	case !errors.Is(err, errTimeout) || stage == notConnected:
		return err
	case stage == connected && w.secrets != nil:
		return fmt.Errorf("connected, but no TLS handshake within %v", w.spec.Probe.Timeout)
	}
	return fmt.Errorf("connected, but %w", err)
}

// isExpected reports whether the probe expects a status.
func (w *httpProber) isExpected(status int) bool {
	if len(w.spec.Probe.Statuses) == 0 {
		return status == http.StatusOK
	}
	for _, r := range w.spec.Probe.Statuses {
		if int(r.First) <= status && status <= int(r.Last) {
			return true
		}
	}
	return false
}
