// Package rig runs Kubernetes in network namespaces of this machine, for tests: a control plane
// alone (StartControlPlane), or a cluster of two nodes with pods in real containers (StartCluster).
// Whatever runs ends with the test process.
package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrNoKubernetes is returned where Kubernetes has not been built on this machine.
var ErrNoKubernetes = errors.New("no Kubernetes in the cache: kube/test/build makes it")

// version is the Kubernetes that kube/test/kubernetes/go.mod names.
const version = "v1.36.3"

// Program returns the path of the program with all of Kubernetes: LOXILB_KUBERNETES, or the cached
// result of kube/test/build.
func Program() (string, error) {
	path := os.Getenv("LOXILB_KUBERNETES")
	if path == "" {
		path = filepath.Join(cacheDir(), "kube-"+version)
	}
	for _, file := range []string{path, kubectl()} {
		if _, err := os.Stat(file); err != nil {
			return "", fmt.Errorf("%w (%s)", ErrNoKubernetes, file)
		}
	}
	return path, nil
}

// kubectl returns the path of kubectl. A program of its own starts in half the time of Program, and
// tests start it hundreds of times.
func kubectl() string { return filepath.Join(cacheDir(), "kubectl-"+version) }

// cacheDir is where tools/lint, test/manifests and kube/test/build keep programs that they build
// once.
func cacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = "/root/.cache"
	}
	return filepath.Join(dir, "loxilb")
}
