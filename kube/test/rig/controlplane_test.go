package rig_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"loxilb/kube/test/rig"
	"loxilb/test/netnstest/labtest"
)

// patience is how long a control plane may take to start on a busy machine.
const patience = 2 * time.Minute

// TestControlPlane checks that an apiserver without nodes keeps objects after a crash, and that
// users have only the rights of their groups.
func TestControlPlane(t *testing.T) {
	t.Parallel()
	host, err := labtest.New(t).Host("cp")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cp, err := rig.StartControlPlane(ctx, host, rig.ControlPlaneOptions{Dir: t.TempDir()})
	if errors.Is(err, rig.ErrNoKubernetes) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cp.Kubectl("create", "service", "loadbalancer", "web", "--tcp=80:8080"); err != nil {
		t.Fatal(err)
	}
	cp.StopAPIServer()
	if err := cp.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	if out, err := cp.Kubectl("get", "service", "web", "--output=jsonpath={.spec.type}"); err != nil || out != "LoadBalancer" {
		t.Errorf("the service is %q after a restart (%v), want LoadBalancer", out, err)
	}
	config, err := cp.Kubeconfig("guest")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := cp.Kubectl("--kubeconfig", config, "get", "services"); err == nil || !strings.Contains(out, "forbidden") {
		t.Errorf("a user without rights can list services: %q (%v)", out, err)
	}
}
