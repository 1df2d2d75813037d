package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"loxilb/kube/api/v1alpha1"
)

func poolKind() schema.GroupVersionKind { return v1alpha1.GroupVersion().WithKind("AddressPool") }

func urlKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "loxiurl.loxilb.io", Version: "v1", Kind: "LoxiURL"}
}

func missingResources(hasPools, hasURLs bool) (missing []schema.GroupVersionKind) {
	if !hasPools {
		missing = append(missing, poolKind())
	}
	if !hasURLs {
		missing = append(missing, urlKind())
	}
	return missing
}

// isServed reports whether the cluster has a custom resource. An apiserver that does not answer
// must not count as one without pools.
func isServed(mapper meta.RESTMapper, kind schema.GroupVersionKind) (bool, error) {
	_, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("ask for custom resource %s: %w", kind.Kind, err)
	}
	return err == nil, nil
}

const lateInterval = 30 * time.Second

// errLate is why the program restarts when a custom resource was created after its start: only a
// new cache watches it.
var errLate = errors.New("a custom resource was created")

// lateResources ends the manager when a missing custom resource was created.
type lateResources struct {
	mapper  meta.RESTMapper
	missing []schema.GroupVersionKind
	every   time.Duration
}

// Start asks for the resources until one is there. It is a Runnable of all replicas.
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

// NeedLeaderElection reports that replicas which wait for the Lease do this, too.
func (l *lateResources) NeedLeaderElection() bool { return false }
