package scenarios

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"
)

// load is a client that makes requests all the time, each by a connection of its own.
type load struct {
	cancel context.CancelFunc
	done   chan struct{}

	began time.Time

	mu       sync.Mutex
	answered map[string]int // by pod
	failed   int
	first    error
	outages  []outage
}

// outage is a time in which requests failed.
type outage struct {
	from, to time.Duration // since the load began
	kinds    map[string]*span
}

// span is when requests failed in one way.
type span struct {
	count    int
	from, to time.Duration // when the first and the last of them began
}

func (s *span) String() string {
	return fmt.Sprintf("%d from %.1f s to %.1f s", s.count, s.from.Seconds(), s.to.Seconds())
}

// startLoad starts a client that makes requests until stop.
func startLoad(ctx context.Context, c client, address string) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{cancel: cancel, done: make(chan struct{}), answered: map[string]int{}, began: time.Now()}
	h := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DialContext: c.dial, DisableKeepAlives: true}}
	go func() {
		defer close(l.done)
		for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
			start := time.Since(l.began)
			pod, err := whoAnswers(ctx, h, address)
			if ctx.Err() != nil {
				tick.Stop()
				return
			}
			l.count(start, pod, err)
		}
	}()
	return l
}

func (l *load) count(start time.Duration, pod string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.answered[pod]++
		return
	}
	l.failed++
	if l.first == nil {
		l.first = err
	}
	const pause = time.Second // of an outage in which some requests are answered
	if n := len(l.outages); n == 0 || start-l.outages[n-1].to > pause {
		l.outages = append(l.outages, outage{from: start, kinds: map[string]*span{}})
	}
	last := &l.outages[len(l.outages)-1]
	last.to = time.Since(l.began)
	kind := kindOf(err)
	if last.kinds[kind] == nil {
		last.kinds[kind] = &span{from: start}
	}
	last.kinds[kind].count++
	last.kinds[kind].to = start
}

// kindOf returns what many errors have in common.
func kindOf(err error) string {
	var timeout interface{ Timeout() bool }
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return err.Error()
}

// report lists the outages.
func (l *load) report() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, o := range l.outages {
		fmt.Fprintf(&b, "\n%6.1f s to %5.1f s: %v", o.from.Seconds(), o.to.Seconds(), o.kinds)
	}
	return b.String()
}

// names returns how many pods have answered.
func (l *load) names() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.answered)
}

// stop ends the client and returns how many requests it made, how many failed, and the first error.
func (l *load) stop() (total, failed int, first error) {
	l.cancel()
	<-l.done
	total = l.failed
	for _, n := range l.answered {
		total += n
	}
	return total, l.failed, l.first
}

// whoAnswers makes a request and returns the name of the pod.
func whoAnswers(ctx context.Context, h *http.Client, address string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return "", err
	}
	answer, err := h.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	pod, _, _ := strings.Cut(string(text), " ")
	return pod, err
}
