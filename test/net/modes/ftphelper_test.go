package modes_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// ftpServerConfig is a configuration of vsftpd. It lets anonymous clients read over both IP
// versions, and does not contain the VIP.
const ftpServerConfig = `listen_ipv6=YES
background=NO
anonymous_enable=YES
local_enable=NO
anon_root=%s
no_anon_password=YES
ftp_username=ftp
seccomp_sandbox=NO
one_process_model=NO
secure_chroot_dir=%s
connect_from_port_20=NO
`

// serveFTP starts Debian's vsftpd on endpoints. It serves the files of dir.
func serveFTP(t *testing.T, r *rig.Rig, dir string, endpoints int) {
	t.Helper()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil { // vsftpd drops its privileges
			t.Fatal(err)
		}
	}
	for _, h := range r.Endpoints[:endpoints] {
		conf := filepath.Join(t.TempDir(), "vsftpd")
		if err := os.WriteFile(conf, fmt.Appendf(nil, ftpServerConfig, dir, t.TempDir()), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Start(netnstest.Command{Args: []string{"vsftpd", conf}}); err != nil {
			t.Fatal(err)
		}
	}
}

// ftpTransfers returns options of curl, by the FTP command that curl then uses.
func ftpTransfers(m helperMode) map[string][]string {
	ways := map[string][]string{"EPSV": nil}
	if m.vip == rig.VIP4 {
		ways["PASV"] = []string{"--disable-epsv", "--no-ftp-skip-pasv-ip"}
	}
	if m.mode == "default" {
		ways["EPRT"] = []string{"--ftp-port", "-"}
		if m.vip == rig.VIP4 {
			ways["PORT"] = []string{"--ftp-port", "-", "--disable-eprt"}
		}
	}
	return ways
}

// TestFTP checks transfers with Debian's vsftpd and curl.
//
// P93 With --helper=ftp, passive transfers work through a VIP in modes default, onearm and fullnat,
// over IPv4, IPv6 and NAT64, and active ones in mode default
func TestFTP(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	dir := t.TempDir()
	got := filepath.Join(t.TempDir(), "got")
	sum := page(t, dir, "page", 8<<20)
	serveFTP(t, r, dir, 1)
	for _, m := range helperModes() {
		r.Loxicmd("create lb %s --tcp=21:21 --helper=ftp --mode=%s --endpoints=%s:1", m.vip, m.mode, rig.Bracket(m.endpoint))
		for word, options := range ftpTransfers(m) {
			args := append([]string{"curl", "-sS", "--max-time", "60", "-o", got, fmt.Sprintf("ftp://%s/page", rig.Bracket(m.vip))}, options...)
			if out, err := r.Client.Run(args...); err != nil {
				t.Errorf("%v, %s: %v %s", m, word, err, out)
				continue
			}
			wantFile(t, fmt.Sprint(word, " ", m), got, sum)
		}
		if m.mode != "default" {
			wantActiveRefused(t, r, m)
		}
		r.Loxicmd("delete lb %s --tcp=21", m.vip)
	}
}

// wantActiveRefused checks that a server refuses an address that is not its client's, and that the
// client can continue with another command.
func wantActiveRefused(t *testing.T, r *rig.Rig, m helperMode) {
	t.Helper()
	c := r.Dial(rig.Join(m.vip, 21))
	if err := c.SetDeadline(time.Now().Add(rig.Patience)); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(c)
	address, family := "100.100.100.1", 1
	if m.vip == rig.VIP6 {
		address, family = "2001:db8:100::1", 2
	}
	for _, step := range []struct{ command, want string }{
		{"", "220 "},
		{"USER anonymous", "230 "},
		{fmt.Sprintf("EPRT |%d|%s|51210|", family, address), "500 "},
		{"PORT 100,100,100,1,200,10", "500 "},
		{"EPSV", "229 "},
	} {
		if step.command != "" {
			if _, err := fmt.Fprintf(c, "%s\r\n", step.command); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(got, step.want) {
			t.Errorf("%v: the answer to %q is %q (%v), want %s", m, step.command, got, err, step.want)
		}
	}
}

// TestFTPFollows checks that transfers reach the endpoint of their control connection.
//
// P94 With --helper=ftp, transfers use the endpoint of their control connection, with any
// algorithm, also while this endpoint is drained, and while the daemon is killed and started again
func TestFTPFollows(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{}) // connections of other tests would look like the one that the test awaits
	dir := t.TempDir()
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	small, large := page(t, dir, "small", 1<<20), page(t, dir, "large", 8<<20)
	serveFTP(t, r, dir, 2)
	const both = "31.31.31.1:1,32.32.32.1:1"
	for _, algorithm := range []string{"rr", "hash", "persist", "lc"} {
		r.Loxicmd("create lb %s --tcp=21:21 --helper=ftp --select=%s --endpoints=%s", rig.VIP4, algorithm, both)
		for range 3 {
			if out, err := r.Client.Run("curl", "-sS", "--max-time", "30", "-o", first, "ftp://"+rig.VIP4+"/small"); err != nil {
				t.Fatalf("%s: %v %s", algorithm, err, out)
			}
			wantFile(t, algorithm, first, small)
		}
		r.Loxicmd("delete lb %s --tcp=21", rig.VIP4)
	}
	r.Loxicmd("create lb %s --tcp=21:21 --helper=ftp --endpoints=31.31.31.1:1", rig.VIP4)
	for _, restarts := range []bool{false, true} {
		curl, err := r.Client.Start(netnstest.Command{Args: []string{
			"curl", "-sS", "--max-time", "120", "--limit-rate", "1M",
			"-o", first, "ftp://" + rig.VIP4 + "/large", "-o", second, "ftp://" + rig.VIP4 + "/small",
		}})
		if err != nil {
			t.Fatal(err)
		}
		r.EventuallyShows("get ct", ":21/", "est")
		r.Loxicmd("drain endpoint 31.31.31.1:21")
		r.Kill()
		if restarts {
			r.Restart()
		}
		if err := curl.Wait(); err != nil {
			t.Errorf("transfers while the endpoint is drained, and the daemon is killed and started again: %t: %v", restarts, err)
		}
		wantFile(t, "begun before the daemon was killed", first, large)
		wantFile(t, "begun afterwards", second, small)
		if !restarts {
			r.Restart()
		}
		r.Loxicmd("undrain endpoint 31.31.31.1:21")
	}
}
