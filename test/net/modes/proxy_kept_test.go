package modes_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
)

// proxyConn is a connection to a server that answers with the addresses in the PROXY header.
type proxyConn struct {
	net.Conn
	want string // the client's and the VIP's address and port
}

// dialProxy opens a connection without sending a request.
func dialProxy(r *rig.Rig, at string) proxyConn {
	r.T.Helper()
	c := r.Dial(at)
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		r.T.Fatal(err)
	}
	fields := make([]string, 0, 4)
	for _, a := range []string{c.LocalAddr().String(), at} {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			r.T.Fatal(err)
		}
		fields = append(fields, host, port)
	}
	return proxyConn{c, strings.Join(fields, " ")}
}

// ask sends a request, and returns an error unless the answer has the addresses of the connection.
func (h proxyConn) ask() error {
	if _, err := fmt.Fprintf(h, "GET /who HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return err
	}
	got, err := readAnswer(h, make([]byte, 4096))
	if err != nil || got != h.want {
		return fmt.Errorf("%s: the server sees %q, want %q: %w", h.RemoteAddr(), got, h.want, err)
	}
	return nil
}

// TestProxyProtocolKept checks that connections with a header continue when the daemon is killed
// and when their endpoint is drained, and that save and apply keep the option. Half of the
// connections send their first data while no daemon runs.
//
// P92 With --ppv2en, open connections continue when the daemon is killed and when their endpoint is
// drained, new ones have the header, and save and apply keep the option
func TestProxyProtocolKept(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	dir := t.TempDir()
	for _, h := range r.Endpoints[:2] {
		of := filepath.Join(dir, h.Name)
		if err := os.Mkdir(of, 0o700); err != nil {
			t.Fatal(err)
		}
		serveProxyPeers(t, h, of)
	}
	fresh := []string{rig.Join(rig.VIP4, 80), rig.Join(rig.VIP4, 81), rig.Join(rig.VIP6, 80)}
	r.Loxicmd("create lb %s --tcp=80:8080,81:9080 --ppv2en --mode=onearm --endpoints=31.31.31.1:1", rig.VIP4)
	r.Loxicmd("create lb %s --tcp=80:8080 --ppv2en --endpoints=[2001:db8:31::1]:1", rig.VIP6)
	var held []proxyConn
	for _, at := range fresh {
		first := dialProxy(r, at)
		if err := first.ask(); err != nil {
			t.Fatal(err)
		}
		held = append(held, first, dialProxy(r, at))
	}
	all := func(when string) {
		t.Helper()
		for _, h := range held {
			if err := h.ask(); err != nil {
				t.Errorf("%s: an open connection: %v", when, err)
			}
		}
		for _, at := range fresh {
			c := dialProxy(r, at)
			if err := c.ask(); err != nil {
				t.Errorf("%s: a new connection: %v", when, err)
			}
			c.Close()
		}
	}
	r.Kill()
	all("without a daemon")
	r.Restart()
	all("after a restart")

	file := filepath.Join(dir, "saved.yaml")
	r.Loxicmd("create lb %s --tcp=82:9080 --ppv2en --endpoints=31.31.31.1:1", rig.VIP4)
	r.Loxicmd("save -f %s", file)
	r.Loxicmd("delete lb %s --tcp=82", rig.VIP4)
	r.Loxicmd("apply -f %s", file)
	fresh = append(fresh, rig.Join(rig.VIP4, 82))
	all("after save, delete and apply")

	r.Loxicmd("create lb %s --tcp=80:8080,81:9080,82:9080 --ppv2en --mode=onearm --endpoints=31.31.31.1:1,32.32.32.1:1", rig.VIP4)
	r.Loxicmd("drain endpoint 31.31.31.1")
	all("while the endpoint is drained")
}
