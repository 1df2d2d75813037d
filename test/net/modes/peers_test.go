package modes_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

const nginxConf = `
daemon off;
master_process off;
pid %[1]s/nginx.pid;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen 8080;
		listen [::]:8080;
		location = /who { return 200 "$remote_addr $remote_port"; }
		root %[1]s;
	}
}
`

// servePeers starts nginx (8080), dnsmasq (5053, UDP and TCP) and iperf3 (5201) on a host, and
// returns iperf3.
func servePeers(t *testing.T, h *netnstest.Host, dir string) (iperf *netnstest.Process) {
	t.Helper()
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, dir), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "page"), []byte(strings.Repeat("0123456789abcdef", 1<<16)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"nginx", "-e", "stderr", "-p", dir, "-c", conf, "-g", "user root;"},
		{
			"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--group=root", "--pid-file=", "--no-resolv", "--no-hosts",
			"--port=5053", "--address=/www.example/192.0.2.7",
		},
		{"iperf3", "--server", "--forceflush"},
	} {
		p, err := h.Start(netnstest.Command{Args: args, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		iperf = p
	}
	for _, port := range []string{"8080", "5053", "5201"} {
		labtest.Eventually(t, rig.Patience, func(ctx context.Context) error {
			c, err := h.DialContext(ctx, "tcp", "127.0.0.1:"+port)
			if err == nil {
				err = c.Close()
			}
			return err
		})
	}
	return iperf
}

// awaitIperf waits until an iperf3 server has finished with the previous client: it serves one at a
// time.
func awaitIperf(t *testing.T, server *netnstest.Process) {
	t.Helper()
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		out := server.Output()
		if strings.LastIndex(out, "Server listening") < strings.LastIndex(out, "Accepted connection") {
			return fmt.Errorf("iperf3 has not finished: %s", out)
		}
		return nil
	})
}

// TestPeers checks each mode, over IPv4 and IPv6, with common programs: curl and nginx, dig and
// dnsmasq, and iperf3.
func TestPeers(t *testing.T) {
	r := rig.Shared(t)
	iperf := servePeers(t, r.Endpoints[0], t.TempDir())
	run := func(what string, args ...string) string {
		t.Helper()
		out, err := r.Client.Run(args...)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return strings.TrimSpace(out)
	}
	for _, f := range []struct{ vip, any, host, endpoint, client, towards string }{
		{rig.VIP4, "0.0.0.0", "100.100.100.254", "31.31.31.1", "100.100.100.1", "31.31.31.254"},
		{rig.VIP6, "::", "2001:db8:100::fe", "2001:db8:31::1", "2001:db8:100::1", "2001:db8:31::fe"},
	} {
		for _, m := range []struct{ mode, create, at, sees string }{
			{"default", f.vip, f.vip, f.client},
			{"onearm", f.vip, f.vip, f.towards},
			{"fullnat", f.vip, f.vip, f.vip},
			{"hostonearm", f.any, f.host, f.towards},
		} {
			what := m.mode + " " + m.at
			// No probe: iperf3 has its UDP socket only while it serves a client.
			r.Loxicmd("create lb %s --tcp=80:8080,53:5053,5201:5201 --udp=53:5053,5201:5201 --probetype=none --mode=%s --endpoints=%s:1", m.create, m.mode, rig.Bracket(f.endpoint))
			if got := run(what, "curl", "-sS", "--max-time", "10", "http://"+rig.Join(m.at, 80)+"/who"); !strings.HasPrefix(got, m.sees+" ") {
				t.Errorf("%s: nginx sees %q, want %s", what, got, m.sees)
			}
			got := run(what, "curl", "-sS", "--max-time", "30", "-o", "/dev/null", "-w", "%{size_download} %{num_connects}",
				"http://"+rig.Join(m.at, 80)+"/page", "-o", "/dev/null", "http://"+rig.Join(m.at, 80)+"/page")
			if got != "1048576 11048576 0" { // the second one over the first one's connection
				t.Errorf("%s: two pages of 1 MiB, bytes and connections: %q", what, got)
			}
			for _, by := range []string{"+notcp", "+tcp"} {
				if got := run(what, "dig", "@"+m.at, by, "+short", "+tries=3", "+time=3", "www.example"); got != "192.0.2.7" {
					t.Errorf("%s: dig %s: %q", what, by, got)
				}
			}
			for _, args := range [][]string{{"-n", "64M"}, {"-n", "64M", "-R"}, {"-u", "-n", "4M", "-b", "200M", "-l", "1200"}} {
				awaitIperf(t, iperf)
				run(what, append([]string{"iperf3", "-c", m.at, "--connect-timeout", "5000"}, args...)...)
			}
			r.Loxicmd("delete lb --all")
		}
	}
}
