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
		spec := Spec{To: serveGRPC(t, loopback, h), Probe: lb.Probe{Type: lb.ProbeGRPC, Timeout: 5 * time.Second}}
		wantAnswer(t, spec, "SERVING")
		spec.Probe.Request = "shop"
		wantAnswer(t, spec, "SERVING")
		spec.Probe.Request = "till"
		wantError(t, spec, "NOT_SERVING")
		spec.Probe.Request = "bank"
		wantError(t, spec, `the endpoint does not know service "bank"`)
		spec.To = serveGRPC(t, loopback, nil)
		wantError(t, spec, "the endpoint does not serve grpc.health.v1")
		spec.To = closedPort(loopback)
		wantError(t, spec, "connection refused")
		spec.To, spec.Probe.Timeout = serve(t, loopback, hold), 500*time.Millisecond
		wantError(t, spec, "connected, but no answer within 500ms")
		spec.To = unansweringPort(t, loopback)
		wantError(t, spec, "no answer within 500ms")
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
		spec := Spec{To: serveGRPC(t, loopback, health.NewServer(), grpc.Creds(credentials.NewTLS(config)))}
		spec.Probe = lb.Probe{Type: lb.ProbeGRPC, Host: "www.example.com", CA: ca.File(t), Certificate: cert, Key: key}
		wantAnswer(t, spec, "SERVING")
		spec.Probe.CA = ""
		wantAnswer(t, spec, "SERVING")
		spec.Probe.CA = other.File(t)
		wantError(t, spec, "certificate is not trusted: x509: certificate signed by unknown authority")
	})
}
