package balancer

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"loxilb/test/await"
)

// TestSilence checks that a balancer which has answered nothing for longer than a restart takes has
// nothing of a Service, that all Services hear of it, and that a shorter absence changes nothing.
func TestSilence(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	f := newFleet(t, Options{}, Access{}, r)
	service, desired := named(1, 1)
	f.Set(service, desired)
	f.Complete()
	if err := f.round(t); err != nil {
		t.Fatal(err)
	}
	r.down.Store(true)
	if err := f.round(t); err == nil {
		t.Fatal("a balancer that is away has answered")
	}
	if s := f.State(service); s.Silent || !s.Programmed {
		t.Errorf("a moment after its end, the state is %+v", s)
	}
	m := f.members[r.URL]
	m.added, m.answered = time.Now().Add(-restartTime), time.Now().Add(-restartTime)
	if s := f.State(service); !s.Silent || s.Programmed {
		t.Errorf("after a long silence, the state is %+v", s)
	}

	heard := make(chan types.NamespacedName, 10)
	f.Changed = func(name types.NamespacedName) {
		if name == service {
			heard <- name
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { m.loop(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	await.True(t, 10*time.Second, "the Service hears of the silence", func() bool { return len(heard) > 0 })
	<-heard
	r.down.Store(false)
	await.True(t, 10*time.Second, "the Service hears of the return", func() bool { return len(heard) > 0 })
	await.True(t, 10*time.Second, "the balancer has the Service", func() bool {
		s := f.State(service)
		return s.Programmed && !s.Silent
	})
}
