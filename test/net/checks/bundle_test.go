package checks_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/test/net/rig"
)

// bundle writes a support bundle and returns its files by name.
func bundle(t *testing.T, r *rig.Rig, args ...string) map[string]string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.tar.gz")
	if out, err := r.Command(append([]string{"support-bundle", "-o", path}, args...)...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	packed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{}
	for files := tar.NewReader(packed); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return parts
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		parts[name] = string(text)
	}
}

// TestBundle checks that the bundle of a running daemon has each part, no secret of a service's
// probe, and no address of a client unless requested.
//
// P67 A support bundle has no secret, and no address of a client unless requested
func TestBundle(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --name=web", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create lb %s --tcp=81:5001 --endpoints=%s --monitor --probetype=http --probeport=5001 --probereq=/health?token=p1anted", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create lb %s --tcp=82:5001 --endpoints=%s --sources=%s/32", rig.VIP4, rig.Endpoints4(), rig.HostAddress(r.Client, false))
	r.Loxicmd("create firewall --firewallRule=sourceIP:%s/32,preference:7 --allow", rig.HostAddress(r.Client, false))
	client := rig.HostAddress(r.Client, false)
	if _, err := r.Ask(rig.Join(rig.VIP4, 80)); err != nil {
		t.Fatal(err)
	}
	parts := bundle(t, r)
	for name, text := range parts {
		if strings.Contains(text, "p1anted") {
			t.Errorf("%s has a secret: %s", name, text)
		}
		if strings.Contains(text, client+" ") || strings.Contains(text, client+`"`) || strings.Contains(text, client+":") || strings.Contains(text, client+"/") {
			t.Errorf("%s has the client's address: %s", name, text)
		}
	}
	for name, words := range map[string]string{
		"objects/services.json": rig.VIP4, "state/connections.json": "web tcp", "state/metrics.txt": "loxilb_", "bpf/programs.txt": "verified_insns:", "network/links.txt": "ep1",
		"checks/verify.json": `"same"`, "checks/doctor.json": `"checks"`, "daemon/version.json": "version", "state/log.json": "ready", "bpf/pins.txt": "/maps/services",
	} {
		if !strings.Contains(parts[name], words) {
			t.Errorf("%q is not in %s: %.300s; %s", words, name, parts[name], parts["MANIFEST"])
		}
	}
	if with := bundle(t, r, "--with-addresses"); !strings.Contains(with["README"], "CLIENT ADDRESSES") || !strings.Contains(with["network/neighbours.txt"], client) {
		t.Errorf("a bundle --with-addresses lacks them: %s", with["network/neighbours.txt"])
	}
}
