package api_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"loxilb/test/certtest"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// TestIdleConnections checks that idle connections of other hosts do not delay health checks of the
// API at any of its addresses. The connections are of several sources and both IP versions, and
// have sent half a request or half a TLS handshake.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	const perSource = 350 // of each of six sources
	cert, key := certtest.SelfSigned(t, time.Now().Add(time.Hour), "lb").Write(t, t.TempDir(), "lb")
	r := rig.New(t, rig.Options{Args: []string{
		"--host=::", "--insecure", "--tls", "--tls-host=::", "--tls-port=8091", "--tls-certificate=" + cert, "--tls-key=" + key,
	}})
	var sources []netip.Addr
	for _, a := range []string{"100.100.100.11", "100.100.100.12", "100.100.100.13"} {
		sources = append(sources, addAddress(t, r.Client, a, 24))
	}
	for _, a := range []string{"2001:db8:100:1::1", "2001:db8:100:2::1", "2001:db8:100:3::1"} {
		sources = append(sources, addAddress(t, r.Client, a, 128))
		rig.MustRun(t, r.LB, "ip", "-6", "route", "add", a, "via", "2001:db8:100::1")
	}
	half := []string{"", "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ", "POST /netlox/v1/auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"}
	for _, source := range sources {
		for i := range perSource {
			to, text := "11111", half[i%len(half)]
			if i%2 == 1 {
				to, text = "8091", "\x16\x03\x01\x00\xf0" // the header of a ClientHello without its body
			}
			c := dialFrom(t, r.Client, source, to)
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, address := range []string{"127.0.0.1", "::1", "100.100.100.254", "2001:db8:100::fe"} {
		var took []time.Duration
		for range 10 {
			start := time.Now()
			if err := checkHealth(t, r.LB, address); err != nil {
				t.Fatalf("health check at %s: %v", address, err)
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		t.Logf("%s: a health check takes %v, at most %v", address, took[len(took)/2], took[len(took)-1])
		if took[0] > 100*time.Millisecond { // the slower ones may have waited for a CPU
			t.Errorf("%s: no health check takes less than %v", address, took[0])
		}
	}
}

func addAddress(t *testing.T, h *netnstest.Host, address string, bits int) netip.Addr {
	t.Helper()
	a := netip.MustParseAddr(address)
	rig.MustRun(t, h, "ip", "addr", "add", fmt.Sprintf("%s/%d", a, bits), "dev", "eth0", "nodad")
	return a
}

// dialFrom opens a connection from one of a host's addresses to the balancer.
func dialFrom(t *testing.T, h *netnstest.Host, source netip.Addr, port string) (c net.Conn) {
	t.Helper()
	to := "100.100.100.254"
	if source.Is6() {
		to = "2001:db8:100::fe"
	}
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0)), Timeout: rig.Patience}
	err := h.Do(func() (err error) {
		c, err = dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(to, port))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// checkHealth makes a health check of the balancer at one of its addresses over a new connection.
func checkHealth(t *testing.T, h *netnstest.Host, address string) error {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return h.DialContext(ctx, network, address)
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+net.JoinHostPort(address, "11111")+"/healthz", nil)
	if err != nil {
		return err
	}
	res, err := (&http.Client{Transport: transport, Timeout: rig.Patience}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("health check: got %s, want code 200", res.Status)
	}
	return nil
}
