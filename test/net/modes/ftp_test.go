package modes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// ftpPassiveConfig is a configuration of vsftpd. It lets anonymous clients read, and announces the
// VIP and a range of ports.
const ftpPassiveConfig = `listen=YES
background=NO
anonymous_enable=YES
local_enable=NO
anon_root=%[1]s
no_anon_password=YES
ftp_username=ftp
seccomp_sandbox=NO
one_process_model=NO
secure_chroot_dir=%[3]s
connect_from_port_20=NO
pasv_promiscuous=YES
pasv_address=%[2]s
pasv_min_port=30000
pasv_max_port=30009
`

// TestFTPByPersist checks passive FTP through a service of all ports of a server.
//
// P91 With --select=persist and a range of ports, passive FTP works through a VIP: both
// connections of a client go to the same server
func TestFTPByPersist(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	own := t.TempDir()
	for i, h := range r.Endpoints[:2] {
		dir := t.TempDir()
		for _, d := range []string{dir, filepath.Dir(dir)} {
			if err := os.Chmod(d, 0o755); err != nil { // vsftpd drops its privileges
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "name"), fmt.Append(nil, i), 0o644); err != nil {
			t.Fatal(err)
		}
		conf := filepath.Join(own, fmt.Sprint("vsftpd", i))
		if err := os.WriteFile(conf, fmt.Appendf(nil, ftpPassiveConfig, dir, rig.VIP4, t.TempDir()), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Start(netnstest.Command{Args: []string{"vsftpd", conf}}); err != nil {
			t.Fatal(err)
		}
	}
	r.Loxicmd("create lb %s --tcp=21-30009:21-30009 --select=persist --endpoints=31.31.31.1:1,32.32.32.1:1", rig.VIP4)
	names := map[string]bool{}
	for _, flags := range [][]string{nil, {"--disable-epsv", "--no-ftp-skip-pasv-ip"}, nil} {
		args := append([]string{"curl", "-sS", "--max-time", "10", "ftp://" + rig.VIP4 + "/name"}, flags...)
		out, err := r.Client.Run(args...)
		if err != nil || len(strings.TrimSpace(out)) != 1 {
			t.Errorf("%v: got %q, %v, want one line", args, out, err)
		}
		names[out] = true
	}
	if len(names) != 1 {
		t.Errorf("a client read files of several servers: %v", names)
	}
}
