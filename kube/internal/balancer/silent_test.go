package balancer

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"loxilb/test/await"
)

// TestSilence checks that the services of a balancer which has not answered for restartTime no
// longer count, that all Services are notified, and that a shorter silence changes nothing.
func TestSilence(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	f := newFleet(t, Options{}, Access{}, r)
	service, desired := numbered(1, 1)
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
		t.Errorf("after a short silence, the state is %+v", s)
	}
	m := f.members[r.URL]
	m.added, m.answered = time.Now().Add(-restartTime), time.Now().Add(-restartTime)
	if s := f.State(service); !s.Silent || s.Programmed {
		t.Errorf("after a long silence, the state is %+v", s)
	}

	notified := make(chan types.NamespacedName, 10)
	f.Changed = func(name types.NamespacedName) {
		if name == service {
			notified <- name
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { m.loop(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	await.True(t, 10*time.Second, "a notification of the silence", func() bool { return len(notified) > 0 })
	<-notified
	r.down.Store(false)
	await.True(t, 10*time.Second, "a notification of the return", func() bool { return len(notified) > 0 })
	await.True(t, 10*time.Second, "the balancer has the Service", func() bool {
		s := f.State(service)
		return s.Programmed && !s.Silent
	})
}
