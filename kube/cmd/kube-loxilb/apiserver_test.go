package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"loxilb/test/await"
)

// TestAwaitAPI checks that the controller waits for the apiserver, alive but not ready, and that a
// refused request ends the wait, too.
func TestAwaitAPI(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusUnauthorized, http.StatusForbidden} {
		var answers atomic.Bool
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if !answers.Load() {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, `{"major":"1","minor":"36"}`)
		}))
		t.Cleanup(server.Close)
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		probes := free.Addr().String()
		if err := free.Close(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- awaitAPI(t.Context(), &rest.Config{Host: server.URL}, probes) }()
		for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
			await.NoError(t, patience, func() error {
				answer, err := http.Get("http://" + probes + path)
				if err != nil {
					return err
				}
				defer answer.Body.Close()
				if answer.StatusCode != want {
					return fmt.Errorf("%s: %d, want %d", path, answer.StatusCode, want)
				}
				return nil
			})
		}
		answers.Store(true)
		if err := <-ended; err != nil {
			t.Errorf("%d: %v", status, err)
		}
		if again, err := net.Listen("tcp", probes); err != nil {
			t.Errorf("%d: the address of probes is in use: %v", status, err)
		} else if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("end of the test")
	cancel(why)
	if err := awaitAPI(ctx, &rest.Config{Host: "http://127.0.0.1:1"}, "0"); !errors.Is(err, why) {
		t.Errorf("a canceled wait returns %v", err)
	}
}

// TestIsUnavailable checks which errors mean that the apiserver does not answer.
func TestIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("leader election lost"), true},
		{fmt.Errorf("read: %w", context.DeadlineExceeded), true},
		{&net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}, true},
		{apierrors.NewServiceUnavailable("etcd is away"), true},
		{apierrors.NewUnauthorized("no"), false},
		{errors.New("the cluster has no ID: set --owner"), false},
	} {
		if got := isUnavailable(tc.err); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.err, got, tc.want)
		}
	}
}
