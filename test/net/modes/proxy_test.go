package modes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// proxyNginx expects the PROXY protocol, and answers with the addresses in the header.
const proxyNginx = `
daemon off;
master_process off;
pid %[1]s/nginx.pid;
events {}
http {
	access_log off;
	keepalive_requests 100000000;
	client_max_body_size 64m;
	client_body_buffer_size 64k;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	root %[1]s;
	server {
		listen 8080 proxy_protocol;
		listen [::]:8080 proxy_protocol;
		listen 8443 ssl proxy_protocol;
		listen [::]:8443 ssl proxy_protocol;
		ssl_certificate %[1]s/cert.pem;
		ssl_certificate_key %[1]s/cert.pem;
		ssl_protocols TLSv1.3;
		location = /who { return 200 "$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_addr $proxy_protocol_server_port"; }
		location = /put { proxy_pass http://127.0.0.1:8081/; }
	}
	server { listen 8081; location / { return 200 "$content_length"; } }
}
`

// proxyHAProxy also expects the PROXY protocol. One of its servers sends a banner first.
const proxyHAProxy = `
global
	maxconn 1000
defaults
	timeout client 60s
	timeout server 60s
	timeout connect 5s
frontend first
	mode http
	bind :9080 accept-proxy
	bind :::9080 accept-proxy v6only
	http-request return status 200 content-type text/plain lf-string "%[src] %[src_port] %[dst] %[dst_port]"
frontend banner
	mode tcp
	bind :9025 accept-proxy
	bind :::9025 accept-proxy v6only
	use_backend smtp
backend smtp
	mode tcp
	server smtp 127.0.0.1:25
`

// serveProxyPeers starts nginx and HAProxy, which expect the PROXY protocol, on a host, and behind
// HAProxy a server that sends a banner first.
func serveProxyPeers(t *testing.T, h *netnstest.Host, dir string) {
	t.Helper()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	rig.MustRun(t, h, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
		"-subj", "/CN=web.example", "-keyout", filepath.Join(dir, "cert.pem"), "-out", filepath.Join(dir, "cert.crt"))
	key, err := os.ReadFile(filepath.Join(dir, "cert.pem"))
	cert, err2 := os.ReadFile(filepath.Join(dir, "cert.crt"))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	write("cert.pem", string(cert)+string(key))
	write("page", strings.Repeat("0123456789abcdef", 1<<16))
	nginx := write("nginx.conf", fmt.Sprintf(proxyNginx, dir))
	haproxy := write("haproxy.cfg", proxyHAProxy)
	for _, args := range [][]string{
		{"nginx", "-e", "stderr", "-p", dir, "-c", nginx, "-g", "user root;"},
		{"haproxy", "-db", "-f", haproxy},
	} {
		if _, err := h.Start(netnstest.Command{Args: args, Dir: dir}); err != nil {
			t.Fatal(err)
		}
	}
	serveBanner(t, h)
	for _, port := range []string{"8080", "9080", "9025"} {
		labtest.Eventually(t, rig.Patience, func(ctx context.Context) error {
			c, err := h.DialContext(ctx, "tcp", "127.0.0.1:"+port)
			if err == nil {
				err = c.Close()
			}
			return err
		})
	}
}

// serveBanner starts a server that sends a banner before it reads, as a mail server does.
func serveBanner(t *testing.T, h *netnstest.Host) {
	t.Helper()
	l, err := h.Listen("tcp", "127.0.0.1:25")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "220 mail.example\r\n")
			c.Close()
		}
	}()
}

// TestProxyProtocol checks services whose endpoints are nginx and HAProxy and expect the PROXY
// protocol. With -long, it makes 1,000,000 requests.
//
// P89 With --ppv2en, nginx and HAProxy get each client's address by the PROXY protocol, also while
// packets are lost
func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	dir := t.TempDir()
	serveProxyPeers(t, r.Endpoints[0], dir)
	proxyModes(t, r, dir)
	proxyProbes(t, r)
	n := 2000
	if rig.IsLong() {
		n = 1000000
	}
	r.Loxicmd("create lb %s --tcp=80:8080 --ppv2en --endpoints=31.31.31.1:1", rig.VIP4)
	r.Loxicmd("create lb %s --tcp=80:8080 --ppv2en --endpoints=[2001:db8:31::1]:1", rig.VIP6)
	makeRequests(t, r, rig.Join(rig.VIP4, 80), n/2, 16)
	makeRequests(t, r, rig.Join(rig.VIP6, 80), n/2, 16)
	setLoss(t, r.Endpoints[0], 3)
	makeRequests(t, r, rig.Join(rig.VIP4, 80), 400, 40)
}

// proxyModes checks that the servers get the addresses and ports of the client and the VIP, in each
// mode, over both IP versions and between them. It also checks pages and uploads of 1 MiB, TLS 1.3,
// and a server that sends first.
func proxyModes(t *testing.T, r *rig.Rig, dir string) {
	t.Helper()
	curl := func(args ...string) string {
		t.Helper()
		out, err := r.Client.Run(append([]string{"curl", "-sS", "-k", "--max-time", "20"}, args...)...)
		if err != nil {
			t.Errorf("curl %v: %v", args, err)
		}
		return strings.TrimSpace(out)
	}
	for _, f := range []struct{ vip, client, endpoint, mode string }{
		{rig.VIP4, "100.100.100.1", "31.31.31.1", "default"},
		{rig.VIP4, "100.100.100.1", "31.31.31.1", "onearm"},
		{rig.VIP4, "100.100.100.1", "31.31.31.1", "fullnat"},
		{rig.VIP4, "100.100.100.1", "2001:db8:31::1", "onearm"},
		{rig.VIP6, "2001:db8:100::1", "2001:db8:31::1", "default"},
		{rig.VIP6, "2001:db8:100::1", "2001:db8:31::1", "onearm"},
		{rig.VIP6, "2001:db8:100::1", "2001:db8:31::1", "fullnat"},
		{rig.VIP6, "2001:db8:100::1", "31.31.31.1", "onearm"},
	} {
		r.Loxicmd("create lb %s --tcp=80:8080,443:8443,81:9080,25:9025 --ppv2en --mode=%s --endpoints=%s:1", f.vip, f.mode, rig.Bracket(f.endpoint))
		for _, url := range []string{"http://" + rig.Join(f.vip, 80), "https://" + rig.Join(f.vip, 443), "http://" + rig.Join(f.vip, 81)} {
			got := strings.Fields(curl(url + "/who"))
			if len(got) != 4 || got[0] != f.client || got[2] != f.vip || !strings.HasSuffix(url, ":"+got[3]) {
				t.Errorf("%s %s: the server sees %q", f.mode, url, got)
			}
		}
		for _, scheme := range []string{"http", "https"} {
			url := map[string]string{"http": "http://" + rig.Join(f.vip, 80), "https": "https://" + rig.Join(f.vip, 443)}[scheme]
			if got := curl("-o", "/dev/null", "-w", "%{size_download}", url+"/page"); got != "1048576" {
				t.Errorf("%s: a page of 1 MiB, bytes: %q", url, got)
			}
			if got := curl("-T", filepath.Join(dir, "page"), url+"/put"); got != "1048576" {
				t.Errorf("%s: an upload of 1 MiB, bytes: %q", url, got)
			}
		}
		if got := readBanner(r, rig.Join(f.vip, 25)); got != "220 mail.example\r\n" {
			t.Errorf("%s: a server that sends first: %q", rig.Join(f.vip, 25), got)
		}
	}
	if out := r.Loxicmd("get lb"); !strings.Contains(out, ":ppv2") {
		t.Errorf("get lb shows no ppv2: %s", out)
	}
}

// proxyProbes checks that HTTP and HTTPS probes of both servers succeed, although these refuse
// connections without a header.
func proxyProbes(t *testing.T, r *rig.Rig) {
	t.Helper()
	for kind, ports := range map[string]string{"http": "80:8080,81:9080", "https": "443:8443"} {
		r.Loxicmd("create lb %s --tcp=%s --ppv2en --endpoints=31.31.31.1:1 --probetype=%s --probereq=/who", rig.VIP4, ports, kind)
		for pair := range strings.SplitSeq(ports, ",") {
			_, port, _ := strings.Cut(pair, ":")
			name := "31.31.31.1_" + kind + "_" + port
			labtest.Eventually(t, rig.Patience, func(context.Context) error {
				if out := r.Loxicmd("get endpoint -o wide --name=%s", name); !strings.Contains(out, "| up ") {
					return errors.New(out)
				}
				return nil
			})
		}
	}
}

func readBanner(r *rig.Rig, at string) string {
	ctx, cancel := context.WithTimeout(r.T.Context(), rig.Patience)
	defer cancel()
	c, err := r.Client.DialContext(ctx, "tcp", at)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(rig.Patience)); err != nil {
		return err.Error()
	}
	b, err := io.ReadAll(c)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// setLoss makes a host lose a share of its packets in both directions.
func setLoss(t *testing.T, h *netnstest.Host, percent int) {
	t.Helper()
	rig.MustRun(t, h, "nft", fmt.Sprintf(`table inet lossy {
		chain in { type filter hook input priority -400; iif != "lo" numgen random mod 100 < %[1]d drop; };
		chain out { type filter hook output priority -400; oif != "lo" numgen random mod 100 < %[1]d drop; };
	}`, percent))
	t.Cleanup(func() { rig.MustRun(t, h, "nft", "delete", "table", "inet", "lossy") })
}

// makeRequests sends many requests, each 20th over a new connection, and checks that each answer
// has the address of the client's socket.
func makeRequests(t *testing.T, r *rig.Rig, at string, n, clients int) {
	t.Helper()
	var made atomic.Int64
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			for made.Load() < int64(n) && !t.Failed() {
				if err := oneConnection(r, at, 20); err != nil {
					t.Errorf("after %d requests: %v", made.Load(), err)
				}
				made.Add(20)
			}
		})
	}
	group.Wait()
	t.Logf("%d requests", made.Load())
}

// oneConnection makes requests over one connection.
func oneConnection(r *rig.Rig, at string, n int) error {
	ctx, cancel := context.WithTimeout(r.T.Context(), time.Minute)
	defer cancel()
	c, err := r.Client.DialContext(ctx, "tcp", at)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(c.LocalAddr().String())
	if err != nil {
		return err
	}
	vip, vipPort, err := net.SplitHostPort(at)
	if err != nil {
		return err
	}
	want := strings.Join([]string{host, port, vip, vipPort}, " ")
	answer := make([]byte, 4096)
	for range n {
		if _, err := fmt.Fprintf(c, "GET /who HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			return err
		}
		got, err := readAnswer(c, answer)
		if err != nil || got != want {
			return fmt.Errorf("the server sees %q, want %q: %w", got, want, err)
		}
	}
	return nil
}

// readAnswer reads an answer, and returns its body.
func readAnswer(c net.Conn, b []byte) (string, error) {
	n := 0
	for {
		m, err := c.Read(b[n:])
		n += m
		head, body, ok := strings.Cut(string(b[:n]), "\r\n\r\n")
		if ok {
			var length int
			_, rest, _ := strings.Cut(strings.ToLower(head), "content-length: ")
			if _, err := fmt.Sscan(rest, &length); err == nil && len(body) >= length {
				return body, nil
			}
		}
		if err != nil {
			return string(b[:n]), err
		}
	}
}
