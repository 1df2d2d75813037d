package release

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// TestRelease checks that releases of a tag from two folders, by users with different settings on
// machines with different names, are complete and have the same bytes.
func TestRelease(t *testing.T) {
	if os.Getenv("LOXILB_RELEASE") == "" {
		t.Skip("make test-release runs it")
	}
	source := tagged(t)
	one, other := clone(t, source, "a"), clone(t, source, "other/and/deeper")
	run(t, one, "make", "release")
	run(t, other, "env", "TZ=Asia/Tokyo", "GOCACHE="+t.TempDir(), "GOFLAGS=-tags=other", "unshare", "--uts",
		"sh", "-c", "umask 077; hostname elsewhere; make release")

	want := []string{"CHANGES.md", "SHA256SUMS", "kube-loxilb.yaml", "kube-loxilb_9.8.7_oci.tar", "loxilb-9.8.7.tgz", "loxilb-open.yaml", "loxilb-token.yaml", "loxilb_9.8.7_oci.tar"}
	for arch, rpm := range map[string]string{"amd64": "x86_64", "arm64": "aarch64"} {
		of := "loxilb_9.8.7_linux_" + arch
		want = append(want, of+".tar.gz", of+".cdx.json", "kube-"+of+".cdx.json", "loxilb_9.8.7_"+arch+".deb", "loxilb-9.8.7-1."+rpm+".rpm")
	}
	slices.Sort(want)
	if got := files(t, one); !slices.Equal(got, want) {
		t.Errorf("the release has %q, want %q", got, want)
	}
	for _, name := range want {
		if a, b := read(t, one, name), read(t, other, name); !bytes.Equal(a, b) {
			t.Errorf("%s differs between the two releases: %d and %d bytes", name, len(a), len(b))
		}
	}
	run(t, filepath.Join(one, "bin/release"), "sha256sum", "--check", "--strict", "SHA256SUMS")
	if got := string(read(t, one, "CHANGES.md")); got != "- What it has.\n" {
		t.Errorf("the section of the changelog: %q", got)
	}
	for name, image := range map[string]string{"loxilb-open.yaml": "localhost/loxilb", "loxilb-token.yaml": "localhost/loxilb", "kube-loxilb.yaml": "localhost/kube-loxilb"} {
		if got := string(read(t, one, name)); !strings.Contains(got, "image: "+image+":9.8.7\n") || strings.Contains(got, ":0.0.0") {
			t.Errorf("%s is of another version:\n%s", name, got)
		}
	}
	wantImages(t, one)
	wantPrograms(t, one)
	wantRefused(t, one)
}

// tagged returns a clone of this repository with an additional commit, which has a tag.
func tagged(t *testing.T) string {
	t.Helper()
	dir := clone(t, strings.TrimSpace(run(t, ".", "git", "rev-parse", "--show-toplevel")), "source")
	path := filepath.Join(dir, "CHANGELOG.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, after, _ := strings.Cut(string(text), "\n## [")
	if err := os.WriteFile(path, []byte(before+"\n## [9.8.7] - 2026-12-31\n\n- What it has.\n## ["+after), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "git", "-c", "user.name=test", "-c", "user.email=test@invalid", "commit", "--quiet", "--all", "--message=9.8.7")
	run(t, dir, "git", "tag", "v9.8.7")
	return dir
}

func clone(t *testing.T, source, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	run(t, ".", "git", "clone", "--quiet", source, dir)
	return dir
}

// wantPrograms unpacks the archives, and checks that programs have the right architecture, need no
// library, report their version, and equal those of the packages.
func wantPrograms(t *testing.T, dir string) {
	t.Helper()
	commit := strings.TrimSpace(run(t, dir, "git", "rev-parse", "HEAD"))
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		to := t.TempDir()
		run(t, filepath.Join(dir, "bin/release"), "tar", "-xzf", "loxilb_9.8.7_linux_"+arch+".tar.gz", "--strip-components=1", "-C", to)
		for name, place := range map[string]string{"loxilb": "usr/sbin", "loxicmd": "usr/bin"} {
			path := filepath.Join(to, name)
			program, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer program.Close()
			if libraries, err := program.ImportedLibraries(); program.Machine != machine || len(libraries) > 0 || err != nil {
				t.Errorf("%s for %s is for %v and needs %q, %v", name, arch, program.Machine, libraries, err)
			}
			if arch == runtime.GOARCH {
				if said := run(t, to, path, "--version"); !strings.Contains(said, " v9.8.7\n") || !strings.Contains(said, commit) {
					t.Errorf("%s --version prints %q", name, said)
				}
			}
			packed := filepath.Join(to, place, name)
			run(t, to, "dpkg-deb", "--extract", filepath.Join(dir, "bin/release", "loxilb_9.8.7_"+arch+".deb"), to)
			run(t, to, "cmp", path, packed)
		}
	}
}

// wantImages checks that the controller's image has its program for both architectures.
func wantImages(t *testing.T, dir string) {
	t.Helper()
	to := t.TempDir()
	run(t, to, "tar", "-xf", filepath.Join(dir, "bin/release/kube-loxilb_9.8.7_oci.tar"))
	top, err := layout.ImageIndexFromPath(to)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(top); err != nil {
		t.Error(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("want one image, got %v, %v", manifest, err)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		images, err := partial.FindImages(index, match.Platforms(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil || len(images) != 1 {
			t.Fatalf("%d images for %s: %v", len(images), arch, err)
		}
		files := mutate.Extract(images[0])
		defer files.Close()
		wantProgram(t, files, "usr/bin/kube-loxilb", machine)
	}
}

// wantProgram checks the architecture of a program in an archive.
func wantProgram(t *testing.T, files io.Reader, path string, machine elf.Machine) {
	t.Helper()
	for archive := tar.NewReader(files); ; {
		h, err := archive.Next()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if h.Name != path {
			continue
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		program, err := elf.NewFile(bytes.NewReader(data))
		if err != nil || program.Machine != machine || !bytes.Contains(data, []byte("v9.8.7")) {
			t.Errorf("%s is not of this version for %v: %v", path, machine, err)
		}
		return
	}
}

// wantRefused checks that a release of uncommitted changes is refused.
func wantRefused(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "new.go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	refused := exec.CommandContext(t.Context(), "tools/release")
	refused.Dir = dir
	if out, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(out), "new.go") {
		t.Errorf("make release accepts uncommitted changes: %s", out)
	}
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(dir, "bin/release"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		names = append(names, f.Name())
	}
	return names
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "bin/release", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func run(t *testing.T, dir string, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s%s", command, err, out, stderr.Bytes())
	}
	return string(out)
}
