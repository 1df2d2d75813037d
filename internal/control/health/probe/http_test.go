package probe

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"loxilb/internal/lb"
	"loxilb/test/certtest"
)

// serveHTTP serves HTTP, or HTTPS with a configuration.
func serveHTTP(t *testing.T, loopback netip.Addr, config *tls.Config, f http.HandlerFunc) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(loopback, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: f, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0)}
	t.Cleanup(func() { s.Close() })
	go func() {
		if config == nil {
			s.Serve(l)
			return
		}
		s.ServeTLS(l, "", "")
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// TestHTTP checks path, header, status and body.
func TestHTTP(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		var connections atomic.Int32
		to := serveHTTP(t, loopback, nil, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.RequestURI() {
			case "/":
				fmt.Fprintf(w, "root of %s", r.Host)
			case "/health?full=1":
				if connections.Add(1); r.Header.Get("Connection") != "close" || r.Header.Get("User-Agent") != "loxilb" || r.Method != http.MethodGet || r.Proto != "HTTP/1.1" {
					t.Errorf(`got %s %s %v, want r.Header.Get("Connection") == "close", `+
						`r.Header.Get("User-Agent") == "loxilb", r.Method == http.MethodGet, r.Proto == "HTTP/1.1"`,
						r.Method, r.Proto, r.Header)
				}
				io.WriteString(w, "all is well")
			case "/elsewhere":
				http.Redirect(w, r, "/health?full=1", http.StatusFound)
			default:
				http.NotFound(w, r)
			}
		})
		spec := Spec{To: to, Probe: lb.Probe{Type: lb.ProbeHTTP}}
		spec.Probe.Response = "root of " + to.String()
		wantAnswer(t, spec, "status 200")
		spec.Probe.Host, spec.Probe.Response = "www.example.com", "root of www.example.com"
		wantAnswer(t, spec, "status 200")
		spec.Probe.Request, spec.Probe.Response = "/health?full=1", "is well"
		wantAnswer(t, spec, "status 200")
		spec.Probe.Response = "is ill"
		wantError(t, spec, `status 200, but the answer does not contain "is ill"`)
		spec.Probe.Request, spec.Probe.Response = "/elsewhere", ""
		wantError(t, spec, "status 302")
		spec.Probe.Statuses = []lb.StatusRange{{First: 200, Last: 204}, {First: 300, Last: 399}}
		wantAnswer(t, spec, "status 302")
		spec.Probe.Request = "nothing"
		wantError(t, spec, "status 404")
		if connections.Load() != 2 {
			t.Errorf("%d probes came to /health: a redirect was followed", connections.Load())
		}
		spec.To = closedPort(loopback)
		wantError(t, spec, "connection refused")
	})
}

// headerListener closes connections that do not begin with a header of the PROXY protocol.
type headerListener struct{ net.Listener }

func (l headerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	header := make([]byte, 16)
	if _, err := io.ReadFull(c, header); err != nil || string(header) != "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00" {
		c.Close()
	}
	return c, nil
}

// TestProxyHeader checks that probes send the header of the PROXY protocol if it is configured, and
// send it before TLS.
func TestProxyHeader(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		certificate := certtest.NewAuthority(t, "ca").Issue(t, loopback.String()).TLS(t)
		for kind, config := range map[lb.ProbeType]*tls.Config{lb.ProbeTCP: nil, lb.ProbeHTTP: nil, lb.ProbeHTTPS: {Certificates: []tls.Certificate{certificate}}} {
			l, err := net.Listen("tcp", netip.AddrPortFrom(loopback, 0).String())
			if err != nil {
				t.Fatal(err)
			}
			l = headerListener{l}
			if config != nil {
				l = tls.NewListener(l, config)
			}
			s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ErrorLog: log.New(io.Discard, "", 0)}
			t.Cleanup(func() { s.Close() })
			go s.Serve(l)
			spec := Spec{To: l.Addr().(*net.TCPAddr).AddrPort(), ProxyHeader: true, Probe: lb.Probe{Type: kind}}
			want := "status 200"
			if kind == lb.ProbeTCP {
				spec.Probe.Request, want = "GET / HTTP/1.0\r\n\r\n", "answered"
			}
			wantAnswer(t, spec, want)
			spec.ProxyHeader = false
			if a, err := probeOnce(t, spec); err == nil {
				t.Errorf("%v without a header: got %+v, want an error", kind, a)
			}
		}
	})
}

// TestHTTPNoProxy checks that probes go to the endpoint even if the environment sets a proxy.
func TestHTTPNoProxy(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	to := serveHTTP(t, netip.MustParseAddr("127.0.0.1"), nil, func(http.ResponseWriter, *http.Request) {})
	wantAnswer(t, Spec{To: to, Probe: lb.Probe{Type: lb.ProbeHTTP, Host: "www.example.com"}}, "status 200")
}

// TestHTTPS checks both versions of HTTP. Certificates are verified if there is a CA file, and
// client certificates are presented.
func TestHTTPS(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		ca, other := certtest.NewAuthority(t, "ca"), certtest.NewAuthority(t, "other")
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
			config := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "www.example.com", loopback.String()).TLS(t)}, NextProtos: []string{"http/1.1"}}
			if protocol == "HTTP/2.0" {
				config.NextProtos = []string{"h2"}
			}
			to := serveHTTP(t, loopback, config, func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, "%s for %s by %q", r.Proto, r.Host, r.TLS.ServerName)
			})
			spec := Spec{To: to, Probe: lb.Probe{Type: lb.ProbeHTTPS}}
			spec.Probe.Response = protocol + " for " + to.String() + ` by ""`
			wantAnswer(t, spec, "status 200")
			spec.Probe.CA = ca.File(t)
			wantAnswer(t, spec, "status 200")
			spec.Probe.Host, spec.Probe.Response = "www.example.com", protocol+` for www.example.com by "www.example.com"`
			wantAnswer(t, spec, "status 200")
			spec.Probe.Host, spec.Probe.Response = "www.example.com:8443", protocol+` for www.example.com:8443 by "www.example.com"`
			wantAnswer(t, spec, "status 200")
			spec.Probe.Host = "www.example.net"
			wantError(t, spec, "certificate is not trusted: x509: certificate is valid for www.example.com, not www.example.net")
			spec.Probe.Host, spec.Probe.CA = "www.example.com", other.File(t)
			wantError(t, spec, "certificate is not trusted: x509: certificate signed by unknown authority")
			spec.Probe.CA = "/etc/ssl/ca.pem"
			wantError(t, spec, "cannot be probed: the probe's CA file is not below "+testFiles.Dir)
		}
	})
}

// TestCertificateTime checks that the evidence of an expired certificate, or one that is not valid
// yet, says so, with the clock's time.
func TestCertificateTime(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		ca, now := certtest.NewAuthority(t, "ca"), time.Now().Truncate(time.Second)
		for _, c := range []struct {
			from, until time.Time
			want        string
		}{
			{now.Add(time.Hour), now.Add(2 * time.Hour), "certificate is not valid before " + now.Add(time.Hour).UTC().Format(time.RFC3339)},
			{now.Add(-2 * time.Hour), now.Add(-time.Hour), "certificate expired at " + now.Add(-time.Hour).UTC().Format(time.RFC3339)},
		} {
			pair := ca.IssueFor(t, c.from, c.until, loopback.String()).TLS(t)
			spec := Spec{Probe: lb.Probe{Type: lb.ProbeHTTPS, CA: ca.File(t)}}
			spec.To = serveHTTP(t, loopback, &tls.Config{Certificates: []tls.Certificate{pair}}, func(http.ResponseWriter, *http.Request) {})
			_, err := probeOnce(t, spec)
			if err == nil || !strings.HasPrefix(err.Error(), c.want+", and this machine's clock says 2") {
				t.Errorf("the probe fails with %v, want %q and the clock of this machine", err, c.want)
			}
		}
	})
}

// TestClientCertificate checks that probes present the client certificate, and read it again after
// its file has changed.
func TestClientCertificate(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		ca, other := certtest.NewAuthority(t, "ca"), certtest.NewAuthority(t, "other")
		config := &tls.Config{
			Certificates: []tls.Certificate{ca.Issue(t, "www.example.com").TLS(t)},
			ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(), NextProtos: []string{"http/1.1"},
		}
		spec := Spec{Probe: lb.Probe{Type: lb.ProbeHTTPS, Response: "loxilb", Timeout: 10 * time.Second}}
		spec.To = serveHTTP(t, loopback, config, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
		})
		wantError(t, spec, "tls: certificate required")
		dir := t.TempDir()
		spec.Probe.Certificate, spec.Probe.Key = other.Issue(t, "loxilb").Write(t, dir, "client")
		p := newHTTP(spec, testFiles)
		if a, err := p.Probe(t.Context()); err == nil {
			t.Errorf("%+v by a certificate of another authority", a)
		}
		renewed := ca.Issue(t, "loxilb")
		renewed.Cert = append(renewed.Cert, '\n') // another size: the time may be the same
		renewed.Write(t, dir, "client")
		if a, err := p.Probe(t.Context()); err != nil {
			t.Errorf("%+v, %v after the certificate is renewed", a, err)
		}
	})
}

// TestHTTPAttacks checks that a probe ends with a reason, whatever an endpoint does.
func TestHTTPAttacks(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		head := func(c net.Conn) { c.Read(make([]byte, 4096)) }
		const begins = "HTTP/1.1 200 OK\r\n"
		for name, attack := range map[string]struct {
			f     func(net.Conn)
			plain string // suffix of the evidence
		}{
			"silence":          {hold, "connected, but no answer within 500ms"},
			"head without end": {func(c net.Conn) { head(c); io.WriteString(c, begins+"A: "); flood(c) }, "server response headers exceeded 65536 bytes; aborted"},
			"head by byte":     {func(c net.Conn) { head(c); io.WriteString(c, begins); drip(c, "A: b\r\n") }, "connected, but no answer within 500ms"},
			"a gigabyte": {
				func(c net.Conn) { head(c); io.WriteString(c, begins+"Content-Length: 1000000000\r\n\r\n"); flood(c) },
				`status 200, but no "well" in the first 65536 bytes of the answer`,
			},
			"body by byte":    {func(c net.Conn) { head(c); io.WriteString(c, begins+"\r\n"); drip(c, "wel") }, ` without "well"`},
			"cut short":       {func(c net.Conn) { head(c); io.WriteString(c, begins+"Content-Length: 9\r\n\r\nwel") }, `status 200, but unexpected EOF after 3 bytes without "well"`},
			"no HTTP":         {func(c net.Conn) { head(c); io.WriteString(c, "SSH-2.0\x1b[2J\r\n\r\n") }, `malformed HTTP response "SSH-2.0\x1b[2J"`},
			"resets":          {func(c net.Conn) { c.(*net.TCPConn).SetLinger(0) }, "connection reset by peer"},
			"closes":          {head, "EOF"},
			"informs forever": {func(c net.Conn) { head(c); drip(c, "HTTP/1.1 100 Continue\r\n\r\n") }, "500ms"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				spec := Spec{To: serve(t, loopback, attack.f), Probe: lb.Probe{Type: lb.ProbeHTTP, Response: "well", Timeout: 500 * time.Millisecond}}
				a, err := probeOnce(t, spec)
				if err == nil || !strings.HasSuffix(err.Error(), attack.plain) {
					t.Errorf("%q, %v; want %q", a.What, err, attack.plain)
				}
			})
		}
		t.Run("no handshake", func(t *testing.T) {
			t.Parallel()
			spec := Spec{To: serve(t, loopback, hold), Probe: lb.Probe{Type: lb.ProbeHTTPS, Timeout: 500 * time.Millisecond}}
			wantError(t, spec, "connected, but no TLS handshake within 500ms")
			spec.To = serve(t, loopback, func(c net.Conn) { drip(c, "\x16\x03\x03\x3f\xff\x02\x00\x3f\xfb") })
			wantError(t, spec, "connected, but no TLS handshake within 500ms")
			spec.To = serve(t, loopback, func(c net.Conn) { head(c); io.WriteString(c, "HTTP/1.0 400 Bad Request\r\n\r\n"); hold(c) })
			wantError(t, spec, "tls: first record does not look like a TLS handshake")
		})
	})
}
