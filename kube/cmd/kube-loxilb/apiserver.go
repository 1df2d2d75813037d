package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

const (
	renewDeadline = 10 * time.Second // of the Lease
	apiTimeout    = 8 * time.Second  // a new connection takes four round trips
	apiInterval   = time.Second
	rightsTimeout = 10 * time.Second // until an apiserver that has just started has loaded the rights
)

// awaitAPI waits until the apiserver answers. Meanwhile the pod is alive but not ready. To exit
// instead would be slower: kubelet restarts the program after growing pauses of up to 5 minutes.
func awaitAPI(ctx context.Context, config *rest.Config, probes string) error {
	config = rest.CopyConfig(config)
	config.Timeout = apiTimeout
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	log, began := slog.New(logHandler), time.Now()
	err = checkAPI(ctx, client)
	if err == nil {
		return nil
	}
	log.Warn("the apiserver does not answer: balancers keep their services until it does", "apiserver", config.Host, "error", err)
	stop, err := servePending(probes)
	if err != nil {
		return err
	}
	defer stop()
	for tick := time.NewTicker(apiInterval); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := checkAPI(ctx, client); err == nil {
			log.Info("the apiserver answers again", "after", time.Since(began).Round(time.Millisecond))
			return nil
		}
	}
}

// checkAPI returns nil if the apiserver answers, even if it refuses the request. It disables the
// client's retries: they take 10 s, during which nothing answers kubelet's probes.
func checkAPI(ctx context.Context, client *discovery.DiscoveryClient) error {
	err := client.RESTClient().Get().AbsPath("/version").MaxRetries(0).Do(ctx).Error()
	if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// servePending answers the probes of kubelet while the apiserver does not answer.
func servePending(address string) (stop func(), err error) {
	if address == "" || address == "0" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the apiserver does not answer", http.StatusServiceUnavailable)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: apiTimeout}
	go func() { _ = server.Serve(listener) }()
	return func() { _ = server.Close() }, nil
}

// isUnavailable reports whether an error means that the apiserver does not answer in time.
func isUnavailable(err error) bool {
	var timeout net.Error
	return err != nil && (strings.Contains(err.Error(), "leader election lost") || // controller-runtime has no error value for it
		errors.As(err, &timeout) || errors.Is(err, context.DeadlineExceeded) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err))
}

// restart executes this program again in the same process. The new instance waits for the
// apiserver. This also ends all goroutines: those of a controller that lost its Lease may hang in
// requests.
func restart(why error) error {
	slog.New(logHandler).Warn("restarting", "reason", why)
	time.Sleep(apiInterval)
	self, err := os.Executable()
	if err != nil {
		return errors.Join(why, err)
	}
	return errors.Join(why, syscall.Exec(self, os.Args, os.Environ()))
}
