package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// browsers request pages continuously: some over one connection, others over a new connection for
// each request. Unlike HTTP libraries, they do not retry.
type browsers struct {
	client  *netnstest.Host
	address string
	wg      sync.WaitGroup
	stop    context.CancelFunc

	mu       sync.Mutex
	answered int
	from     map[string]int // answers, by pod
	err      error          // the first error
}

const pace = 10 * time.Millisecond

// startBrowsers starts the given numbers of browsers that keep a connection, and that open new
// ones.
func startBrowsers(t testing.TB, client *netnstest.Host, address string, kept, opening int) *browsers {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	b := &browsers{client: client, address: address, stop: stop, from: map[string]int{}}
	for range kept {
		conn, err := b.dial()
		if err != nil {
			t.Fatal(err)
		}
		b.wg.Go(func() {
			defer conn.Close() //nolint:errcheck // at the end
			b.repeat(ctx, func() (string, error) { return ask(conn) })
		})
	}
	for range opening {
		b.wg.Go(func() { b.repeat(ctx, b.askOnce) })
	}
	t.Cleanup(func() { _ = b.finish() })
	return b
}

func (b *browsers) dial() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	return b.client.DialContext(ctx, "tcp", b.address)
}

func (b *browsers) repeat(ctx context.Context, f func() (string, error)) {
	for ctx.Err() == nil {
		pod, err := f()
		b.mu.Lock()
		if err == nil {
			b.answered++
			b.from[pod]++
		} else if b.err == nil {
			b.err = fmt.Errorf("after %d answers: %w", b.answered, err)
		}
		b.mu.Unlock()
		if err != nil {
			return
		}
		time.Sleep(pace)
	}
}

// askOnce makes a request over a new connection.
func (b *browsers) askOnce() (string, error) {
	conn, err := b.dial()
	if err != nil {
		return "", err
	}
	pod, err := ask(conn)
	return pod, errors.Join(err, conn.Close())
}

// ask requests a page, and returns the name of its pod.
func ask(conn net.Conn) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(rig.Patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if err == nil && (resp.StatusCode != http.StatusOK || len(body) != answerBytes) {
		err = fmt.Errorf("%s with %d bytes", resp.Status, len(body))
	}
	return strings.TrimSpace(string(body)), err
}

func (b *browsers) answers() (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.answered, b.err
}

// awaitAnswers waits until some hundred further requests were answered.
func (b *browsers) awaitAnswers(t testing.TB) {
	t.Helper()
	before, _ := b.answers()
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if n, err := b.answers(); n < before+300 && err == nil {
			return fmt.Errorf("%d answers", n-before)
		}
		return nil
	})
}

// finish stops all browsers, and returns the first error.
func (b *browsers) finish() error {
	b.stop()
	b.wg.Wait()
	return b.err
}
