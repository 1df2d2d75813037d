package probe

import (
	"crypto/tls"
	"net"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"loxilb/internal/lb"
	"loxilb/test/certtest"
)

// serveGRPC serves grpc.health.v1, or no service if h is nil.
func serveGRPC(t *testing.T, loopback netip.Addr, h grpc_health_v1.HealthServer, options ...grpc.ServerOption) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(loopback, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	t.Cleanup(s.Stop)
	if h != nil {
		grpc_health_v1.RegisterHealthServer(s, h)
	}
	go s.Serve(l)
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// TestGRPC checks the state of the whole server, and of a service.
func TestGRPC(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		h := health.NewServer()
		h.SetServingStatus("shop", grpc_health_v1.HealthCheckResponse_SERVING)
		h.SetServingStatus("till", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		q := Question{To: serveGRPC(t, loopback, h), Probe: lb.Probe{Type: lb.ProbeGRPC, Timeout: 5 * time.Second}}
		wantAnswer(t, q, "SERVING")
		q.Probe.Request = "shop"
		wantAnswer(t, q, "SERVING")
		q.Probe.Request = "till"
		wantError(t, q, "NOT_SERVING")
		q.Probe.Request = "bank"
		wantError(t, q, `service "bank" is not known there`)
		q.To = serveGRPC(t, loopback, nil)
		wantError(t, q, "the endpoint does not serve grpc.health.v1")
		q.To = closedPort(loopback)
		wantError(t, q, "connection refused")
		q.To, q.Probe.Timeout = serve(t, loopback, hold), 500*time.Millisecond
		wantError(t, q, "connected, but no answer within 500ms")
		q.To = unansweringPort(t, loopback)
		wantError(t, q, "no answer within 500ms")
	})
}

// TestGRPCTLS checks that TLS is used if there are files for it.
func TestGRPCTLS(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		ca, other := certtest.NewAuthority(t, "ca"), certtest.NewAuthority(t, "other")
		config := &tls.Config{
			Certificates: []tls.Certificate{ca.Issue(t, "www.example.com").TLS(t)},
			ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(),
		}
		cert, key := ca.Issue(t, "loxilb").Write(t, t.TempDir(), "client")
		q := Question{To: serveGRPC(t, loopback, health.NewServer(), grpc.Creds(credentials.NewTLS(config)))}
		q.Probe = lb.Probe{Type: lb.ProbeGRPC, Host: "www.example.com", CA: ca.File(t), Certificate: cert, Key: key}
		wantAnswer(t, q, "SERVING")
		q.Probe.CA = ""
		wantAnswer(t, q, "SERVING")
		q.Probe.CA = other.File(t)
		wantError(t, q, "certificate is not trusted: x509: certificate signed by unknown authority")
	})
}
