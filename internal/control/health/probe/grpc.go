package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// grpcProber probes by gRPC, over TLS if the probe has files for it. Each probe opens a connection.
type grpcProber struct {
	spec    Spec
	secrets *tlsFiles // nil: no TLS
}

func newGRPC(spec Spec, files Files) grpcProber {
	c := grpcProber{spec: spec}
	if spec.Probe.CA != "" || spec.Probe.Certificate != "" {
		c.secrets = newTLSFiles(spec, files)
	}
	return c
}

func (c grpcProber) Probe(ctx context.Context) (Answer, error) {
	security := insecure.NewCredentials()
	if c.secrets != nil {
		config, err := c.secrets.config()
		if err != nil {
			return Answer{}, err
		}
		security = credentials.NewTLS(config)
	}
	var dialed atomic.Pointer[error] // the result of connecting; nil: it has not ended
	security = errorRecorder{security, &dialed}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(security), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithUserAgent("loxilb"), grpc.WithMaxHeaderListSize(maxSearched), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(chunk)),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			conn, err := dial(ctx, "tcp", c.spec)
			dialed.Store(&err)
			return conn, err
		}),
	}
	if c.spec.Probe.Host != "" {
		options = append(options, grpc.WithAuthority(c.spec.Probe.Host))
	}
	start := time.Now()
	connection, err := grpc.NewClient("passthrough:///"+c.spec.To.String(), options...)
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	defer connection.Close()
	answer, err := grpc_health_v1.NewHealthClient(connection).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: c.spec.Probe.Request})
	if err != nil {
		return Answer{}, c.describeError(dialed.Load(), err)
	}
	if s := answer.GetStatus(); s != grpc_health_v1.HealthCheckResponse_SERVING {
		return Answer{}, errors.New(s.String())
	}
	return Answer{What: "SERVING", Delay: time.Since(start)}, nil
}

// describeError returns the error of connecting, or else describes the endpoint's answer.
func (c grpcProber) describeError(dialed *error, err error) error {
	if dialed != nil && *dialed != nil {
		return shorten(c.spec, *dialed)
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.DeadlineExceeded:
		if dialed == nil {
			return timeoutError(c.spec)
		}
		return fmt.Errorf("connected, but %w", timeoutError(c.spec))
	case codes.NotFound:
		return fmt.Errorf("the endpoint does not know service %q", c.spec.Probe.Request)
	case codes.Unimplemented:
		return errors.New("the endpoint does not serve grpc.health.v1")
	}
	return fmt.Errorf("%v: %s", s.Code(), s.Message())
}

// errorRecorder records why a TLS handshake failed. gRPC's own error hides the reason in other
// text.
type errorRecorder struct {
	credentials.TransportCredentials
	failed *atomic.Pointer[error]
}

func (w errorRecorder) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := w.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		w.failed.Store(&err)
	}
	return c, info, err
}

func (w errorRecorder) Clone() credentials.TransportCredentials {
	return errorRecorder{w.TransportCredentials.Clone(), w.failed}
}
