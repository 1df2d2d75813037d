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
	"testing"
	"time"

	"loxilb/kube/test/rig"
)

// load is a client that makes requests all the time, each on a new connection.
type load struct {
	cluster *rig.Cluster
	cancel  context.CancelFunc
	done    chan struct{}
	conns   watcher

	began time.Time

	mu       sync.Mutex
	answered map[string]int // by pod
	failed   int
	first    error
	outages  []outage
}

// outage is a period in which requests failed.
type outage struct {
	from, to time.Duration // since the load began
	kinds    map[string]*span
}

// span counts failures of one kind.
type span struct {
	count    int
	from, to time.Duration // begin of the first and of the last of these requests
}

func (s *span) String() string {
	return fmt.Sprintf("%d from %.1f s to %.1f s", s.count, s.from.Seconds(), s.to.Seconds())
}

// startLoad starts a client that makes requests until stop.
func startLoad(ctx context.Context, cluster *rig.Cluster, c client, address string) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{cluster: cluster, cancel: cancel, done: make(chan struct{}), answered: map[string]int{}, began: time.Now()}
	keepLogs(cluster)
	h := &http.Client{Timeout: answerTimeout, Transport: &http.Transport{DialContext: l.conns.dial(c), DisableKeepAlives: true}}
	go func() {
		defer close(l.done)
		for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
			start := time.Since(l.began)
			l.conns.forget()
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

// answerTimeout is the timeout of a load's requests.
const answerTimeout = 2 * time.Second

// count records the result of a request.
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
	const pause = time.Second // longest time without failures within an outage
	if n := len(l.outages); n == 0 || start-l.outages[n-1].to > pause {
		l.outages = append(l.outages, outage{from: start, kinds: map[string]*span{}})
	}
	last := &l.outages[len(l.outages)-1]
	last.to = time.Since(l.began)
	kind := kindOf(err)
	if kind == timeout {
		kind += ", " + l.conns.stage()
	}
	if last.kinds[kind] == nil {
		last.kinds[kind] = &span{from: start}
	}
	last.kinds[kind].count++
	last.kinds[kind].to = start
}

const timeout = "timeout"

// kindOf returns a text that is the same for errors of one kind.
func kindOf(err error) string {
	var late interface{ Timeout() bool }
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &late) && late.Timeout():
		return timeout
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

// names returns the number of pods that have answered.
func (l *load) names() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.answered)
}

// stop ends the client and returns the numbers of all and of failed requests, and the first error.
func (l *load) stop() (total, failed int, first error) {
	l.cancel()
	<-l.done
	total = l.failed
	for _, n := range l.answered {
		total += n
	}
	return total, l.failed, l.first
}

// check ends the client, and fails the test if more requests failed than allowed.
func (l *load) check(t testing.TB, what string, allowed int) {
	t.Helper()
	total, failed, first := l.stop()
	t.Logf("%s: %d of %d requests failed%s", what, failed, total, l.report())
	if failed > allowed {
		t.Errorf("%s: %d of %d requests failed, the first one: %v", what, failed, total, first)
		logOutages(t, l)
	}
}

// whoAnswers makes a request and returns the name of the pod that answers.
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
