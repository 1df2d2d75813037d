package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lateMapper finds kinds from the fourth call on. The second call fails.
type lateMapper struct {
	meta.RESTMapper
	calls atomic.Int32
}

func (m *lateMapper) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	switch m.calls.Add(1) {
	case 1, 3:
		return nil, &meta.NoKindMatchError{GroupKind: kind}
	case 2:
		return nil, errors.New("connection refused")
	}
	return &meta.RESTMapping{}, nil
}

// TestLateResources checks that a custom resource which is created after the start restarts the
// program.
func TestLateResources(t *testing.T) {
	t.Parallel()
	mapper := &lateMapper{}
	late := &lateResources{mapper, missingResources(false, true), time.Millisecond}
	if err := late.Start(t.Context()); !errors.Is(err, errLate) || !strings.Contains(err.Error(), "AddressPool") || mapper.calls.Load() != 4 {
		t.Errorf("after %d calls: %v", mapper.calls.Load(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&lateResources{mapper, nil, time.Hour}).Start(ctx); err != nil || late.NeedLeaderElection() {
		t.Errorf("at the end: %v", err)
	}
}
