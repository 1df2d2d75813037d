package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"loxilb/kube/api/v1alpha1"
	"loxilb/kube/internal/controller"
)

// poolKind returns the kind of address pools.
func poolKind() schema.GroupVersionKind { return v1alpha1.GroupVersion().WithKind("AddressPool") }

// missingResources returns the kinds that the cluster lacks.
func missingResources(hasPools, hasURLs bool) (missing []schema.GroupVersionKind) {
	if !hasPools {
		missing = append(missing, poolKind())
	}
	if !hasURLs {
		missing = append(missing, controller.LoxiURLKind())
	}
	return missing
}

// isServed reports whether the cluster has a custom resource. It returns an error if the apiserver
// does not answer: that must not count as a cluster without pools.
func isServed(mapper meta.RESTMapper, kind schema.GroupVersionKind) (bool, error) {
	_, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("find custom resource %s: %w", kind.Kind, err)
	}
	return err == nil, nil
}

const lateInterval = 30 * time.Second

// errLate makes the program restart after a missing custom resource was created: only a new cache
// watches it.
var errLate = errors.New("a custom resource was created")

// lateResources ends the manager when a missing custom resource was created.
type lateResources struct {
	mapper  meta.RESTMapper
	missing []schema.GroupVersionKind
	every   time.Duration
}

// Start returns errLate when one of the missing resources exists. It is a Runnable of all replicas.
func (l *lateResources) Start(ctx context.Context) error {
	for tick := time.NewTicker(l.every); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
		for _, kind := range l.missing {
			if served, err := isServed(l.mapper, kind); served && err == nil {
				return fmt.Errorf("%w: %s", errLate, kind.Kind)
			}
		}
	}
}

// NeedLeaderElection returns false, so replicas which wait for the Lease also restart.
func (l *lateResources) NeedLeaderElection() bool { return false }
