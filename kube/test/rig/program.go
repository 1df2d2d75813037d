// Package rig runs Kubernetes in network namespaces of this machine, for tests: a control plane
// alone (StartControlPlane), or a cluster of two nodes with pods in real containers (StartCluster).
// All of it ends with the test process.
package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrNoKubernetes reports that Kubernetes was not built on this machine.
var ErrNoKubernetes = errors.New("no Kubernetes in the cache: run kube/test/build")

// version is the version of Kubernetes in kube/test/kubernetes/go.mod.
const version = "v1.36.3"

// Program returns the path of the program with all components of Kubernetes: LOXILB_KUBERNETES, or
// else the one that kube/test/build has cached.
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

// kubectl returns the path of kubectl. It is a separate program since it starts in half the time of
// Program, and tests start it hundreds of times.
func kubectl() string { return filepath.Join(cacheDir(), "kubectl-"+version) }

// cacheDir returns the directory where tools/lint, test/manifests and kube/test/build keep programs
// that they build once.
func cacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = "/root/.cache"
	}
	return filepath.Join(dir, "loxilb")
}
