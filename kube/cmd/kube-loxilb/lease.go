package main

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"loxilb/kube/internal/options"
)

// podName is the variable with the pod's name, which the chart sets.
const podName = "POD_NAME"

// newLease returns the Lease that the leader holds, or nil without an election.
func newLease(config *rest.Config, o *options.Options) (resourcelock.Interface, error) {
	if !o.LeaderElect {
		return nil, nil
	}
	id, err := identity()
	if err != nil {
		return nil, fmt.Errorf("--leader-elect: %w", err)
	}
	config = rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	config.Timeout = renewDeadline / 2 // one request that hangs must not cost the Lease
	leases, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return resourcelock.New(resourcelock.LeasesResourceLock, o.Namespace, "kube-loxilb-"+o.Zone, nil, leases,
		resourcelock.ResourceLockConfig{Identity: id})
}

// identity returns the name of this replica in the Lease: that of its pod, so that a container
// which has ended gets the Lease back at once. There is one at a time in a pod. Elsewhere, several
// replicas may share a host.
func identity() (string, error) {
	if name := os.Getenv(podName); name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	if host == "" {
		return "", errors.New("this host has no name")
	}
	return host + "_" + string(uuid.NewUUID()), nil
}
