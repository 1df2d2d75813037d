package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestVersion checks that packages sort like versions, with a prerelease of 1.2.3 before 1.2.3, and
// that other tags are not accepted as versions.
func TestVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"version", "release"} {
		text, err := os.ReadFile(filepath.Join("../../tools", name))
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, "tools"), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "tools", name), text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	commit := func() {
		run(t, dir, "git", "-c", "user.name=test", "-c", "user.email=test@invalid", "commit", "--quiet", "--allow-empty", "--message=x")
	}
	run(t, dir, "git", "init", "--quiet")
	run(t, dir, "git", "add", ".")
	older := ""
	for _, step := range []struct{ tag, version, packaged string }{
		{"", "", "0.0.0+"},
		{"other-1", "", "0.0.0+"},
		{"v1.2.2", "v1.2.2", "1.2.2"},
		{"", "v1.2.2-1-g", "1.2.2+1.g"},
		{"v1.2.3-rc1", "v1.2.3-rc1", "1.2.3~rc1"},
		{"", "v1.2.3-rc1-1-g", "1.2.3~rc1+1.g"},
		{"v1.2.3-rc2", "v1.2.3-rc2", "1.2.3~rc2"},
		{"v1.2.3", "v1.2.3", "1.2.3"},
	} {
		commit()
		if step.tag != "" {
			run(t, dir, "git", "tag", step.tag)
		}
		version, packaged := strings.TrimSpace(run(t, dir, "tools/version")), strings.TrimSpace(run(t, dir, "tools/version", "package"))
		if !strings.HasPrefix(version, step.version) || step.version == "" && strings.Contains(version, "-") || !strings.HasPrefix(packaged, step.packaged) {
			t.Errorf("%+v: %s, of packages %s", step, version, packaged)
		}
		if older != "" && step.tag != "other-1" {
			run(t, dir, "dpkg", "--compare-versions", older, "lt", packaged)
		}
		older = packaged
	}
	commit()
	run(t, dir, "git", "tag", "v1.2_4")
	refused := exec.CommandContext(t.Context(), "tools/release")
	refused.Dir = dir
	if out, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(out), "v1.2_4 is no version") {
		t.Errorf(`got %v: %s, want an error, "v1.2_4 is no version" in string(out)`, err, out)
	}
}
