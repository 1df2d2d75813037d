package modes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

const nginxAtVIPs = `
daemon off;
master_process off;
pid %[1]s/nginx.pid;
error_log stderr;
events {}
http {
	access_log %[1]s/access.log;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen ` + rig.VIP4 + `:8080;
		listen [` + rig.VIP6 + `]:8080;
		location / { return 200 "$server_addr:${server_port}/$remote_addr\n"; }
	}
}
`

// serveNginxAtVIPs starts nginx on a host. It listens only at the VIPs.
func serveNginxAtVIPs(t testing.TB, h *netnstest.Host) {
	t.Helper()
	dir := t.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxAtVIPs, dir), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Start(netnstest.Command{Args: []string{"nginx", "-e", "stderr", "-p", dir, "-c", conf, "-g", "user root;"}}); err != nil {
		t.Fatal(err)
	}
}

// newVIPProbeRig returns a rig whose first endpoint listens only at the VIPs, and whose second
// endpoint lacks the VIPs.
func newVIPProbeRig(t testing.TB, o rig.Options) *rig.Rig {
	t.Helper()
	o.Before = rig.ConfigureDirectReturn
	r := rig.New(t, o)
	rig.ServeSourcesAt(r, rig.VIP4, rig.VIP6)
	serveNginxAtVIPs(t, r.Endpoints[0])
	for _, vip := range []string{rig.VIP4 + "/32", rig.VIP6 + "/128"} {
		if err := r.Endpoints[1].DelAddress("lo", rig.Prefix(vip)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Endpoints[1].ServeHTTP("[::]:8080"); err != nil {
		t.Fatal(err)
	}
	rig.Decapsulate(r, "198.18.0.0/15,100::/64,31.31.31.254,2001:db8:31::fe,32.32.32.254,2001:db8:32::fe")
	return r
}

// TestDSRProbes checks that probes of every kind go to the VIP in mode dsr, by the endpoint's MAC
// address or in the tunnel of clients' packets. Their source is this machine's own address,
// although it also has the VIP. A server that listens only at the VIP is up. An endpoint without
// the VIP is down, although its own address answers. A firewall rule that drops all packets does
// not drop the answers.
//
// P47 In mode dsr, probes go to the VIP by the path of clients' packets
func TestDSRProbes(t *testing.T) {
	t.Parallel()
	for _, hook := range []string{"tcx", "clsact"} {
		t.Run(hook, func(t *testing.T) {
			t.Parallel()
			r := newVIPProbeRig(t, rig.Options{Args: []string{"--attach=" + hook}})
			r.Loxicmd("create firewall --firewallRule=preference:0 --drop")
			for _, f := range []struct{ vip, well, without, own string }{
				{rig.VIP4, "31.31.31.1", "32.32.32.1", "31.31.31.254"},
				{rig.VIP6, "2001:db8:31::1", "2001:db8:32::1", "2001:db8:31::fe"},
			} {
				for _, tunnel := range []string{"none", "ipip", "gue"} {
					checkProbesAtVIP(r, f.vip, f.well, f.without, f.own, tunnel)
				}
			}
		})
	}
}

// checkProbesAtVIP checks every kind of probe of an endpoint with the VIP, and of one without it.
func checkProbesAtVIP(r *rig.Rig, vip, well, without, own, tunnel string) {
	r.T.Helper()
	endpoints := rig.Bracket(well) + ":1," + rig.Bracket(without) + ":1"
	missing := "in mode dsr the endpoint must own " + vip
	const probing = "--probe-interval=200ms --probe-retries=2"
	for _, c := range []struct {
		service, kind, flags string
		port                 int
		says                 string
	}{
		{"--tcp=8080:8080", "tcp", "", 8080, "accepts connections"},
		{"--tcp=8080:8080", "http", "--proberesp=" + vip + ":8080/" + own, 8080, "status 200"},
		{"--udp=7000:7000", "udp", "--probereq=hello --proberesp=" + rig.Bracket(own) + ":", 7000, "answered"},
		{"--udp=7000:7000", "ping", "", 7000, "answered"},
	} {
		r.Loxicmd("create lb %s %s --mode=dsr --tunnel=%s --endpoints=%s --probetype=%s %s %s", vip, c.service, tunnel, endpoints, c.kind, c.flags, probing)
		asked := c.kind + " " + rig.Join(vip, c.port) + " at "
		if c.kind == "ping" {
			asked = "ping " + vip + " at "
		}
		r.T.Logf("%s over %s by %s", vip, tunnel, c.kind)
		r.EventuallyShows("get ep", " up ", asked+well+": "+c.says)
		r.EventuallyShows("get ep", " down ", asked+without, missing)
	}
	r.Loxicmd("create lb %s --udp=7001:7001 --mode=dsr --tunnel=%s --endpoints=%s:1 --probetype=udp %s", vip, tunnel, rig.Bracket(well), probing)
	r.EventuallyShows("get ep", " down ", "udp "+rig.Join(vip, 7001)+" at "+well+": connection refused")
	for _, service := range []string{"--tcp=8080", "--udp=7000", "--udp=7001"} {
		r.Loxicmd("delete lb %s %s", vip, service)
	}
}
