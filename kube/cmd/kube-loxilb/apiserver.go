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
	askTimeout    = 8 * time.Second  // a new connection takes four round trips
	askInterval   = time.Second
	rightsTimeout = 10 * time.Second // an apiserver that has just started knows no rights yet
)

// awaitAPI waits until the apiserver answers. Meanwhile the pod is alive but not ready. Exiting
// would be slower: kubelet restarts the program after growing pauses of up to 5 minutes.
func awaitAPI(ctx context.Context, config *rest.Config, probes string) error {
	config = rest.CopyConfig(config)
	config.Timeout = askTimeout
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	log, began := slog.New(logHandler), time.Now()
	err = ask(ctx, client)
	if err == nil {
		return nil
	}
	log.Warn("the apiserver does not answer: balancers keep their services until it does", "apiserver", config.Host, "error", err)
	stop, err := servePending(probes)
	if err != nil {
		return err
	}
	defer stop()
	for tick := time.NewTicker(askInterval); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := ask(ctx, client); err == nil {
			log.Info("the apiserver answers again", "after", time.Since(began).Round(time.Millisecond))
			return nil
		}
	}
}

// ask returns nil if the apiserver answers, even by a refusal. It disables the client's retries,
// which block for 10 s, in which kubelet's probes get no answer.
func ask(ctx context.Context, client *discovery.DiscoveryClient) error {
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
	server := &http.Server{Handler: mux, ReadHeaderTimeout: askTimeout}
	go func() { _ = server.Serve(listener) }()
	return func() { _ = server.Close() }, nil
}

// isUnavailable reports whether the program ends because the apiserver does not answer, or not in
// time.
func isUnavailable(err error) bool {
	var timeout net.Error
	return err != nil && (strings.Contains(err.Error(), "leader election lost") || // controller-runtime has no value for it
		errors.As(err, &timeout) || errors.Is(err, context.DeadlineExceeded) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err))
}

// restart replaces this program by a new instance of itself, which waits for the apiserver.
// Goroutines of this instance end with it: those of a controller that lost its Lease may hang in
// requests.
func restart(why error) error {
	slog.New(logHandler).Warn("restarting", "reason", why)
	time.Sleep(askInterval)
	self, err := os.Executable()
	if err != nil {
		return errors.Join(why, err)
	}
	return errors.Join(why, syscall.Exec(self, os.Args, os.Environ()))
}
