package etcd

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"loxilb/test/await"
)

// TestRefused checks that an error has the reason why no server can be reached.
func TestRefused(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Servers: []string{"127.0.0.1:1", "127.0.0.2:1"}, Prefix: "/test"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, _, err = s.Revision(t.Context(), "head"); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf(`got %v, want an error, "connection refused" in the error`, err)
	}
}

// TestSlowLogin checks that a call does not wait for the login of another call for longer than its
// own timeout, and that the store can be closed meanwhile.
func TestSlowLogin(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := New(Config{Servers: []string{l.Addr().String()}, Prefix: "/test", User: "node", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			if _, _, err := s.Revision(t.Context(), "head"); err == nil {
				t.Error("a server that does not answer has answered")
			}
		})
	}
	calls.Wait()
	if took := time.Since(began); took > 3*callTimeout { // one after the other, they take 4 times as long
		t.Errorf("four calls at once took %v, want %v at most", took, 2*callTimeout)
	}
	calls.Go(func() { _, _, _ = s.Revision(t.Context(), "head") })
	await.True(t, patience, "a login", func() bool { return len(s.clientToken) == 1 })
	began = time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > callTimeout/2 {
		t.Errorf("the store was closed after %v", took)
	}
	calls.Wait()
}
