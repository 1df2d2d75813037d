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

// ftpTLSConfig lets clients use TLS.
const ftpTLSConfig = `ssl_enable=YES
allow_anon_ssl=YES
force_local_logins_ssl=NO
force_local_data_ssl=NO
require_ssl_reuse=NO
ssl_ciphers=HIGH
rsa_cert_file=%[1]s
`

// TestFTPTLS reads a file from Debian's vsftpd by curl over TLS. With --helper=ftp, the control
// connection works and the data connection does not; a metric and doctor report the reason. A
// service of all ports works.
func TestFTPTLS(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	dir, own := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil { // vsftpd drops its privileges
			t.Fatal(err)
		}
	}
	sum := page(t, dir, "page", 1<<20)
	cert, conf := filepath.Join(own, "cert.pem"), filepath.Join(own, "vsftpd")
	rig.MustRun(t, r.Endpoints[0], "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
		"-subj", "/CN=ftp.example", "-keyout", cert, "-out", cert+".crt")
	key, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := os.ReadFile(cert + ".crt")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cert, append(signed, key...), 0o600); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(ftpPassiveConfig, dir, rig.VIP4, t.TempDir()) + fmt.Sprintf(ftpTLSConfig, cert)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Endpoints[0].Start(netnstest.Command{Args: []string{"vsftpd", conf}}); err != nil {
		t.Fatal(err)
	}
	got := filepath.Join(own, "got")
	curl := []string{"curl", "-sS", "--ssl-reqd", "--insecure", "--max-time", "20", "--connect-timeout", "5", "-o", got, "ftp://" + rig.VIP4 + "/page"}
	const endpoints = "--endpoints=31.31.31.1:1"
	r.Loxicmd("create lb %s --tcp=21:21 --helper=ftp %s", rig.VIP4, endpoints)
	if out, err := r.Client.Run(curl...); err == nil {
		t.Errorf("a transfer over TLS works with --helper=ftp: %s", out)
	}
	r.EventuallyMetric(1, "ftp_refused_total", "reason=tls")
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		out, _ := r.Command("doctor") // exits with 1 if it reports a problem
		if !strings.Contains(out, "control connections of FTP changed to TLS") || !strings.Contains(out, "--select=persist") {
			return fmt.Errorf("doctor prints %s", out)
		}
		return nil
	})
	r.Loxicmd("delete lb %s --tcp=21", rig.VIP4)
	r.Loxicmd("create lb %s --tcp=21-30009:21-30009 --select=persist %s", rig.VIP4, endpoints)
	if out, err := r.Client.Run(curl...); err != nil {
		t.Fatalf("by a service of all ports: %v %s", err, out)
	}
	wantFile(t, "over TLS", got, sum)
}
