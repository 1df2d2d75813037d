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

// call probes by gRPC, over TLS if its files are given. Each probe has its own connection.
type call struct {
	q       Question
	secrets *secrets // nil: no TLS
}

func newCall(q Question, files Files) call {
	c := call{q: q}
	if q.Probe.CA != "" || q.Probe.Certificate != "" {
		c.secrets = newSecrets(q, files)
	}
	return c
}

func (c call) Probe(ctx context.Context) (Answer, error) {
	security := insecure.NewCredentials()
	if c.secrets != nil {
		config, err := c.secrets.config()
		if err != nil {
			return Answer{}, err
		}
		security = credentials.NewTLS(config)
	}
	var dialed atomic.Pointer[error] // why connecting failed
	security = watched{security, &dialed}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(security), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithUserAgent("loxilb"), grpc.WithMaxHeaderListSize(most), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(chunk)),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			conn, err := dial(ctx, "tcp", c.q)
			dialed.Store(&err)
			return conn, err
		}),
	}
	if c.q.Probe.Host != "" {
		options = append(options, grpc.WithAuthority(c.q.Probe.Host))
	}
	start := time.Now()
	connection, err := grpc.NewClient("passthrough:///"+c.q.To.String(), options...)
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	defer connection.Close()
	answer, err := grpc_health_v1.NewHealthClient(connection).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: c.q.Probe.Request})
	if err != nil {
		return Answer{}, c.failed(dialed.Load(), err)
	}
	if s := answer.GetStatus(); s != grpc_health_v1.HealthCheckResponse_SERVING {
		return Answer{}, errors.New(s.String())
	}
	return Answer{What: "SERVING", Delay: time.Since(start)}, nil
}

// failed returns the error of the connection, or the endpoint's answer.
func (c call) failed(dialed *error, err error) error {
	if dialed != nil && *dialed != nil {
		return shorten(c.q, *dialed)
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.DeadlineExceeded:
		if dialed == nil {
			return timeoutError(c.q)
		}
		return fmt.Errorf("connected, but %w", timeoutError(c.q))
	case codes.NotFound:
		return fmt.Errorf("service %q is not known there", c.q.Probe.Request)
	case codes.Unimplemented:
		return errors.New("the endpoint does not serve grpc.health.v1")
	}
	return fmt.Errorf("%v: %s", s.Code(), s.Message())
}

// watched records why a handshake has failed. gRPC's own error hides the reason between other text.
type watched struct {
	credentials.TransportCredentials
	failed *atomic.Pointer[error]
}

func (w watched) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := w.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		w.failed.Store(&err)
	}
	return c, info, err
}

func (w watched) Clone() credentials.TransportCredentials {
	return watched{w.TransportCredentials.Clone(), w.failed}
}
