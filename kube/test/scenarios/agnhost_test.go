package scenarios

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/kube/test/rig"
)

// Names of the images that Kubernetes' specs use.
const (
	agnhostName = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"
	pauseName   = "registry.k8s.io/pause:3.10.2"
)

// agnhost returns the image of Kubernetes' specs: their server and client, built from Kubernetes'
// sources, with this machine's shell and other programs that specs run.
func agnhost(t testing.TB) rig.Image {
	t.Helper()
	image := rig.Image{
		Name: agnhostName, Program: artifact(t, "LOXILB_KUBE_AGNHOST"), Dir: "/", Default: []string{"pause"},
		Files: map[string]string{"/bin/busybox": "/bin/busybox"},
		Links: map[string]string{"/bin/nc": "nc.openbsd", "/bin/sh": "dash", "/uploads": "/tmp"},
	}
	image.Links["/agnhost"] = filepath.Base(image.Program) // the path that some specs use; the file's name has a version
	for _, program := range []string{"/bin/dash", "/bin/bash", "/usr/bin/curl", "/usr/bin/wget", "/bin/nc.openbsd", "/bin/ss"} {
		image.Files["/bin/"+filepath.Base(program)] = program
		for _, library := range libraries(t, program) {
			image.Files[library] = library
		}
	}
	// Specs expect busybox' wget, which tries once.
	image.Files["/etc/wgetrc"] = filepath.Join(t.TempDir(), "wgetrc")
	if err := os.WriteFile(image.Files["/etc/wgetrc"], []byte("tries = 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	applets, err := exec.CommandContext(t.Context(), "/bin/busybox", "--list").Output()
	if err != nil {
		t.Fatal("busybox-static is missing: ", err)
	}
	for name := range strings.FieldsSeq(string(applets)) {
		path := "/bin/" + name
		if image.Files[path] == "" && image.Links[path] == "" {
			image.Links[path] = "busybox"
		}
	}
	return image
}

// libraries returns the paths of the libraries that a program loads.
func libraries(t testing.TB, program string) (paths []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ldd", program).Output()
	if err != nil {
		t.Fatalf("libraries of %s: %v", program, err)
	}
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/") {
			paths = append(paths, word)
		}
	}
	return paths
}
