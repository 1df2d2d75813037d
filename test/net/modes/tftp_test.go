package modes_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// helperMode is a service's VIP, mode and endpoint.
type helperMode struct{ vip, mode, endpoint string }

func helperModes() []helperMode {
	return []helperMode{
		{rig.VIP4, "default", "31.31.31.1"},
		{rig.VIP4, "onearm", "31.31.31.1"},
		{rig.VIP4, "fullnat", "31.31.31.1"},
		{rig.VIP6, "default", "2001:db8:31::1"},
		{rig.VIP6, "onearm", "2001:db8:31::1"},
		{rig.VIP6, "fullnat", "2001:db8:31::1"},
		{rig.VIP6, "onearm", "31.31.31.1"},
	}
}

// page writes a file of so many bytes that anybody may read, and returns its sum.
func page(t *testing.T, dir, name string, size int) [sha256.Size]byte {
	t.Helper()
	data := bytes.Repeat([]byte("0123456789abcde\n"), size/16)
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(data)
}

func wantFile(t *testing.T, what, file string, want [sha256.Size]byte) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil || sha256.Sum256(data) != want {
		t.Errorf("%s: other data arrived, %d bytes: %v", what, len(data), err)
	}
	if err := os.Remove(file); err != nil {
		t.Error(err)
	}
}

// TestTFTP checks transfers with Debian's tftpd and curl.
//
// P90 With --helper=tftp, files are read from and written to TFTP servers behind a VIP, also while
// the daemon is killed and started again
func TestTFTP(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	dir, own := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))} {
		if err := os.Chmod(d, 0o755); err != nil { // tftpd gives up its rights
			t.Fatal(err)
		}
	}
	sum := page(t, dir, "page", 1<<20)
	page(t, own, "page", 1<<20)
	args := []string{"in.tftpd", "--foreground", "--listen", "--secure", "--permissive", "--user", "root", dir}
	if _, err := r.Endpoints[0].Start(netnstest.Command{Args: args}); err != nil {
		t.Fatal(err)
	}
	got := filepath.Join(own, "got")
	for _, m := range helperModes() {
		r.Loxicmd("create lb %s --udp=69:69 --helper=tftp --mode=%s --endpoints=%s:1", m.vip, m.mode, rig.Bracket(m.endpoint))
		url := fmt.Sprintf("tftp://%s/page", rig.Bracket(m.vip))
		if out, err := r.Client.Run([]string{"curl", "-sS", "--max-time", "20", "-o", got, url}...); err != nil {
			t.Errorf("%v: %v %s", m, err, out)
			continue
		}
		wantFile(t, fmt.Sprint("read ", m), got, sum)
		if out, err := r.Client.Run([]string{"curl", "-sS", "--max-time", "20", "-T", filepath.Join(own, "page"), url}...); err != nil {
			t.Errorf("%v: %v %s", m, err, out)
		}
		wantFile(t, fmt.Sprint("written ", m), filepath.Join(dir, "page"), sum)
		page(t, dir, "page", 1<<20)
		r.Loxicmd("delete lb %s --udp=69", m.vip)
	}
	large := page(t, dir, "large", 8<<20)
	r.Loxicmd("create lb %s --udp=69:69 --helper=tftp --endpoints=31.31.31.1:1", rig.VIP4)
	curl, err := r.Client.Start(netnstest.Command{Args: []string{"curl", "-sS", "--max-time", "60", "-o", got, "tftp://" + rig.VIP4 + "/large"}})
	if err != nil {
		t.Fatal(err)
	}
	r.EventuallyShows("get ct", "udp-est")
	r.Kill()
	r.Restart()
	if err := curl.Wait(); err != nil {
		t.Errorf("a transfer while the daemon is killed: %v", err)
	}
	wantFile(t, "read while the daemon is killed", got, large)
}
