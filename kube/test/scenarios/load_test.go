package scenarios

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// load is a client that makes requests all the time, each by a connection of its own.
type load struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	answered map[string]int // by pod
	failed   int
	first    error
}

// startLoad starts a client that makes requests until stop.
func startLoad(ctx context.Context, c client, address string) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{cancel: cancel, done: make(chan struct{}), answered: map[string]int{}}
	h := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DialContext: c.dial, DisableKeepAlives: true}}
	go func() {
		defer close(l.done)
		for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
			pod, err := whoAnswers(ctx, h, address)
			if ctx.Err() != nil {
				tick.Stop()
				return
			}
			l.count(pod, err)
		}
	}()
	return l
}

func (l *load) count(pod string, err error) {
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
