package image

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const goArch = runtime.GOARCH

// layouts returns the directories of the two builds of make test-image.
func layouts() []string {
	return []string{os.Getenv("LOXILB_IMAGE"), os.Getenv("LOXILB_IMAGE_AGAIN")}
}

func needImage(t *testing.T) {
	t.Helper()
	if layouts()[0] == "" {
		t.Skip("make test-image makes the image, and runs it")
	}
	t.Parallel()
}

// whole returns the only index of a layout.
func whole(t testing.TB, dir string) v1.ImageIndex {
	t.Helper()
	top, err := layout.ImageIndexFromPath(filepath.Join(dir, "oci"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := top.IndexManifest()
	if err != nil || len(m.Manifests) != 1 {
		t.Fatalf("got %v: %+v, want no error, 1 element in m.Manifests", err, m)
	}
	index, err := top.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// imageOf returns the image for an architecture.
func imageOf(t testing.TB, index v1.ImageIndex, arch string) v1.Image {
	t.Helper()
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range m.Manifests {
		if d.Platform != nil && d.Platform.OS == "linux" && d.Platform.Architecture == arch {
			image, err := index.Image(d.Digest)
			if err != nil {
				t.Fatal(err)
			}
			return image
		}
	}
	t.Fatalf("no image for %s in %+v", arch, m.Manifests)
	return nil
}

// TestSame checks that a build in another folder, at another time, has the same digest, which
// covers everything in the image.
//
// P71 Two builds of a commit make the same container image, by its digest
func TestSame(t *testing.T) {
	needImage(t)
	var digests []v1.Hash
	for _, dir := range layouts() {
		digest, err := whole(t, dir).Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("two builds have the digests %v", digests)
	}
}

// TestLayout checks that the image conforms to OCI for both architectures, and has its labels.
func TestLayout(t *testing.T) {
	needImage(t)
	index := whole(t, layouts()[0])
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		config, err := imageOf(t, index, arch).ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"title", "description", "version", "revision", "created", "licenses", "vendor"} {
			if config.Config.Labels["org.opencontainers.image."+name] == "" {
				t.Errorf("%s: there is no label %s", arch, name)
			}
		}
		if config.Architecture != arch || config.Config.Healthcheck == nil || len(config.Config.Entrypoint) != 1 {
			t.Errorf("%s: the configuration is %+v", arch, config)
		}
	}
}

// TestContent checks that the image has two static programs, and no shell, library or file that
// other users can write.
func TestContent(t *testing.T) {
	needImage(t)
	index := whole(t, layouts()[0])
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		root := mutate.Extract(imageOf(t, index, arch))
		programs := 0
		for r := tar.NewReader(root); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Uid != 0 || h.Gid != 0 || (h.Mode&0o022 != 0 && h.Typeflag != tar.TypeSymlink && h.Name != "tmp") || h.Mode&0o6000 != 0 {
				t.Errorf("%s: %s has owner %d:%d and mode %o", arch, h.Name, h.Uid, h.Gid, h.Mode)
			}
			if h.Typeflag != tar.TypeReg || h.Mode&0o111 == 0 {
				continue
			}
			programs++
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			program, err := elf.NewFile(bytes.NewReader(content))
			if err != nil {
				t.Fatalf("%s: %s: %v", arch, h.Name, err)
			}
			for _, p := range program.Progs {
				if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
					t.Errorf("%s: %s needs libraries", arch, h.Name)
				}
			}
			if program.Machine != machine {
				t.Errorf("%s: %s is for %v", arch, h.Name, program.Machine)
			}
		}
		if programs != 2 {
			t.Errorf("%s: there are %d programs", arch, programs)
		}
	}
}

// TestBill checks that the bill of materials is in the image, and lists what go version -m finds in
// the programs.
func TestBill(t *testing.T) {
	needImage(t)
	files, err := filepath.Glob(filepath.Join(layouts()[0], "*_linux_"+goArch+".cdx.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got %v: %v, want no error, 1 element in files", err, files)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "root")
	unpack(t, root)
	if inside, err := os.ReadFile(filepath.Join(root, "usr/share/sbom/loxilb.cdx.json")); err != nil || !bytes.Equal(inside, text) {
		t.Errorf("the bill of materials in the image differs: %v", err)
	}
	var listed struct {
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(text, &listed); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, c := range listed.Components {
		versions[c.Name] = c.Version
	}
	built, err := exec.Command("../../tools/go", "version", "-m", filepath.Join(root, "usr/sbin/loxilb")).Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(string(built), -1)
	for _, m := range modules {
		if versions[m[1]] != m[2] {
			t.Errorf("%s %s is in loxilb, the bill has %q", m[1], m[2], versions[m[1]])
		}
	}
	if len(modules) < 10 || versions["std"] == "" || !strings.Contains(string(built), "go"+versions["std"]) {
		t.Errorf("%d modules, std %q", len(modules), versions["std"])
	}
}
