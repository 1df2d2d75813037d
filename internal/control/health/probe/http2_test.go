package probe

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"loxilb/internal/lb"
	"loxilb/test/certtest"
)

// serveHTTP2 serves one HTTP/2 connection. It ignores all frames but the first request, which f
// answers.
func serveHTTP2(c net.Conn, f func(net.Conn, *http2.Framer)) {
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	fr := http2.NewFramer(c, c)
	fr.AllowIllegalWrites = true
	_ = fr.WriteSettings()
	for answered := false; ; {
		frame, err := fr.ReadFrame()
		if err != nil {
			return
		}
		if frame.Header().Type == http2.FrameHeaders && !answered {
			answered = true
			go f(c, fr)
		}
	}
}

// head returns a header block with status 200, and names and values.
func head(more ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	_ = e.WriteField(hpack.HeaderField{Name: ":status", Value: "200"}) // writes to memory
	for pair := range slices.Chunk(more, 2) {
		_ = e.WriteField(hpack.HeaderField{Name: pair[0], Value: pair[1]})
	}
	return b.Bytes()
}

// untilError calls f until it fails.
func untilError(f func() error) {
	for f() == nil {
	}
}

// TestHTTP2Attacks checks that a probe fails with a reason, connects at most twice, and reads a
// bounded amount, whatever HTTP/2 frames an endpoint sends.
//
// P54 A probe ends in its time and reads 1 MiB at most, whatever the endpoint sends over TCP
func TestHTTP2Attacks(t *testing.T) {
	t.Parallel()
	ca, loopback := certtest.NewAuthority(t, "ca"), netip.MustParseAddr("127.0.0.1")
	config := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "127.0.0.1").TLS(t)}, NextProtos: []string{"h2"}}
	headers := func(fr *http2.Framer, block []byte, end bool) error {
		return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: end})
	}
	const endless = "no answer in the first 1048576 bytes"
	for name, attack := range map[string]struct {
		f           func(net.Conn, *http2.Framer)
		https, grpc string // part of the error of an HTTPS and a gRPC probe
	}{
		"silence":          {func(net.Conn, *http2.Framer) {}, "connected, but no answer within 2s", "connected, but no answer within 2s"},
		"no body":          {func(_ net.Conn, fr *http2.Framer) { _ = headers(fr, head(), true) }, "status 200, but no answer within 2s", "connected, but no answer within 2s"},
		"refuses":          {func(_ net.Conn, fr *http2.Framer) { _ = fr.WriteRSTStream(1, http2.ErrCodeRefusedStream) }, errEnded.Error(), "no answer within 2s"},
		"GOAWAY":           {func(c net.Conn, fr *http2.Framer) { _ = fr.WriteGoAway(0, http2.ErrCodeNo, nil); c.Close() }, errEnded.Error(), "draining"},
		"endless PINGs":    {func(_ net.Conn, fr *http2.Framer) { untilError(func() error { return fr.WritePing(false, [8]byte{}) }) }, endless, endless},
		"endless SETTINGS": {func(_ net.Conn, fr *http2.Framer) { untilError(func() error { return fr.WriteSettings() }) }, endless, endless},
		"endless empty DATA": {func(_ net.Conn, fr *http2.Framer) {
			_ = headers(fr, head("content-type", "application/grpc"), true)
			untilError(func() error { return fr.WriteData(1, false, nil) })
		}, endless, endless},
		"an endless header block": {func(_ net.Conn, fr *http2.Framer) {
			_ = headers(fr, head(), false)
			more := head("x", strings.Repeat("y", 10000))
			untilError(func() error { return fr.WriteContinuation(1, false, more) })
		}, "PROTOCOL_ERROR", "PROTOCOL_ERROR"},
		"a message of 4 GiB": {func(_ net.Conn, fr *http2.Framer) {
			_ = headers(fr, head("content-type", "application/grpc"), true)
			_ = fr.WriteData(1, false, []byte{0, 255, 255, 255, 255})
			untilError(func() error { return fr.WriteData(1, false, make([]byte, 16384)) })
		}, `status 200, but no "well" in the first 65536 bytes of the answer`, "received message larger than max"},
	} {
		for kind, want := range map[lb.ProbeType]string{lb.ProbeHTTPS: attack.https, lb.ProbeGRPC: attack.grpc} {
			t.Run(name+" "+kind.String(), func(t *testing.T) {
				t.Parallel()
				var connections atomic.Int32
				spec := Spec{Probe: lb.Probe{Type: kind, Timeout: 2 * time.Second}}
				if want == endless {
					spec.Probe.Timeout = never
				}
				if kind == lb.ProbeHTTPS {
					spec.Probe.Response = "well"
				}
				spec.To = serve(t, loopback, func(c net.Conn) {
					connections.Add(1)
					if kind == lb.ProbeHTTPS {
						c = tls.Server(c, config)
					}
					serveHTTP2(c, attack.f)
				})
				a, err := probeOnce(t, spec)
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%q, %v; want %q", a.What, err, want)
				}
				if n := connections.Load(); n > 2 {
					t.Errorf("%d connections", n)
				}
			})
		}
	}
}
