package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// elsewhere returns a command that runs a script of the package on files below root. PATH begins
// with programs of the test.
func elsewhere(t *testing.T, script, root string, programs map[string]string) *exec.Cmd {
	t.Helper()
	text, err := os.ReadFile("../../deploy/package/" + script)
	if err != nil {
		t.Fatal(err)
	}
	paths := strings.NewReplacer("/etc/", root+"/etc/", "/var/", root+"/var/", "/run/", root+"/run/", "/usr/sbin/", root+"/bin/")
	programs["script"] = paths.Replace(string(text))
	for _, dir := range []string{"bin", "etc/default", "var/lib", "var/log", "run"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(root, "bin", name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", filepath.Join(root, "bin/script"))
	cmd.Env = []string{"PATH=" + root + "/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return cmd
}

// TestAsConfigured checks that the package's scripts run loxilb with the arguments that systemd
// parses from /etc/default/loxilb.
func TestAsConfigured(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"":                      "[--detach]",
		"LOXILB_OPTIONS=\"\"\n": "[--detach]",
		"LOXILB_OPTIONS=\"--whitelist='^eth[01]$' --xdp=off\"\n":                     "[--detach][--whitelist=^eth[01]$][--xdp=off]",
		"LOXILB_OPTIONS=--whitelist='^(a|b)$'  --xdp=off \n":                         "[--detach][--whitelist=^(a|b)$][--xdp=off]",
		"; don't\n# \"\nLOXILB_OPTIONS='--otlp-headers=\"a=b c\"'\n":                 "[--detach][--otlp-headers=a=b c]",
		"LOXILB_OPTIONS=\"--xdp=off \\\n  --page=false\"\n":                          "[--detach][--xdp=off][--page=false]",
		"LOXILB_OPTIONS=--xdp=off \\\n  --page=false\nLOXILB_COMPAT=1\n":             "[--detach][--xdp=off][--page=false]compat",
		"LOXILB_COMPAT=1\nLOXILB_OPTIONS=--cluster=none\nLOXILB_OPTIONS=--xdp=off\n": "[--detach][--xdp=off]compat",
	} {
		root := t.TempDir()
		cmd := elsewhere(t, "loxilb-as-configured", root, map[string]string{"loxilb": "#!/bin/sh\nprintf '[%s]' \"$@\"\n[ -z \"$LOXILB_COMPAT\" ] || printf compat\n"})
		cmd.Args = append(cmd.Args, "--detach")
		if file != "" {
			if err := os.WriteFile(filepath.Join(root, "etc/default/loxilb"), []byte(file), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := cmd.CombinedOutput(); string(out) != want || err != nil {
			t.Errorf("%q: %s, %v, want %s", file, out, err, want)
		}
	}
}

// TestPurgeOfMount checks that a purge empties a state directory that is a mount point, and
// succeeds.
func TestPurgeOfMount(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	purge := elsewhere(t, "scripts/postrm", root, map[string]string{
		"deb-systemd-helper": "#!/bin/sh\n", "getent": "#!/bin/sh\necho loxilb:x:999:\n", "groupdel": "#!/bin/sh\necho group $1 is gone\n",
	})
	state := root + "/var/lib/loxilb"
	purge.Args = []string{
		purge.Args[0], "--mount", "sh", "-ec",
		`mkdir "$1" && mount -t tmpfs state "$1" && touch "$1/users.json" && "$2" purge && ls -A "$1"`, "sh", state,
		purge.Args[2],
	}
	out, err := purge.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "group loxilb is gone\n") {
		t.Errorf(`got %v: %s, want no error, string(out) ends with "group loxilb is gone\n"`, err, out)
	}
}
