package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"loxilb/kube/internal/options"
	"loxilb/test/await"
)

// TestAwaitAPI checks that the controller waits for an apiserver that is away, alive but not ready,
// and that a refusal is an answer, too.
func TestAwaitAPI(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusUnauthorized, http.StatusForbidden} {
		var there atomic.Bool
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if !there.Load() {
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
		there.Store(true)
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
	why := errors.New("told to end")
	cancel(why)
	if err := awaitAPI(ctx, &rest.Config{Host: "http://127.0.0.1:1"}, "0"); !errors.Is(err, why) {
		t.Errorf("a controller that has to end: %v", err)
	}
}

// TestAbsence checks which ends of the controller are those of an apiserver that does not answer.
func TestAbsence(t *testing.T) {
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
		if got := isAbsence(tc.err); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.err, got, tc.want)
		}
	}
}

// TestIdentity checks that a replica has the name of its pod, and one without a pod a name of its
// own.
func TestIdentity(t *testing.T) {
	t.Setenv(podName, "controller-1")
	if got, err := identity(); got != "controller-1" || err != nil {
		t.Errorf("in a pod: %q, %v", got, err)
	}
	t.Setenv(podName, "")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	first, err1 := identity()
	second, err2 := identity()
	if err1 != nil || err2 != nil || first == second || !strings.HasPrefix(first, host+"_") {
		t.Errorf("elsewhere: %q and %q, %v, %v", first, second, err1, err2)
	}
}

// TestLease checks that requests for the Lease have a timeout, and no others: watches last.
func TestLease(t *testing.T) {
	t.Parallel()
	config := &rest.Config{Host: "https://192.0.2.1"}
	o := &options.Options{LeaderElect: true, Namespace: "kube-system", Zone: "llb"}
	if lease, err := newLease(config, o); err != nil || lease == nil {
		t.Fatalf("no Lease: %v, %v", lease, err)
	}
	if config.Timeout != 0 || config.UserAgent != "" {
		t.Errorf("all requests have timeout %v and user agent %q", config.Timeout, config.UserAgent)
	}
	o.LeaderElect = false
	if lease, err := newLease(config, o); err != nil || lease != nil {
		t.Errorf("without election: %v, %v", lease, err)
	}
}
