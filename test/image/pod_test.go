package image

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"loxilb/test/netnstest"
)

// answerBytes is the length of a pod's response: some packets.
const answerBytes = 4000

// nginxConfig makes each response begin with the pod's name.
const nginxConfig = `daemon off; worker_processes 1; pid /run/nginx.pid; error_log stderr;
events { worker_connections 1024; }
http {
  access_log off; keepalive_requests 1000000; keepalive_timeout 60s; default_type text/plain;
  client_body_temp_path /run/1; proxy_temp_path /run/2; fastcgi_temp_path /run/3; uwsgi_temp_path /run/4; scgi_temp_path /run/5;
  server { listen 80; listen [::]:80; location / { root /srv; } }
}
`

// startPod starts a web server in a container with its own root file system: Debian's nginx, and a
// page with its name.
func startPod(t testing.TB, h *netnstest.Host) {
	t.Helper()
	bundle := t.TempDir()
	root := filepath.Join(bundle, "root")
	for _, dir := range []string{"proc", "sys", "dev", "run", "usr", "lib", "lib64", "etc", "srv", "var/log/nginx", "var/lib/nginx"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	page := fmt.Sprintf("%-*s", answerBytes, h.Name)
	for name, text := range map[string]string{
		"srv/index.html": page, "etc/nginx.conf": nginxConfig, "etc/passwd": "root:x:0:0::/:/\nnobody:x:65534:65534::/:/\n",
		"etc/group": "root:x:0:\nnogroup:x:65534:\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mounts := []object{{"destination": "/run", "type": "tmpfs", "source": "tmpfs"}}
	for _, dir := range []string{"/usr", "/lib", "/lib64"} {
		if _, err := os.Stat(dir); err == nil {
			mounts = append(mounts, object{"destination": dir, "type": "bind", "source": dir, "options": []string{"rbind", "ro"}})
		}
	}
	caps := []string{"CAP_NET_BIND_SERVICE", "CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_DAC_OVERRIDE"}
	newContainer(t, h, bundle, root, object{
		"args":         []string{"/usr/sbin/nginx", "-c", "/etc/nginx.conf"},
		"env":          []string{"PATH=/usr/sbin:/usr/bin"},
		"user":         object{"uid": 0, "gid": 0},
		"capabilities": object{"bounding": caps, "effective": caps, "permitted": caps},
	}, mounts).start()
}
