// Package labtest uses the labs of netnstest in tests: a failure ends the test, and its end removes
// the lab.
package labtest

import (
	"context"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/netnstest"
)

// New returns an empty lab that is removed when the test ends.
func New(t testing.TB) *netnstest.Lab {
	t.Helper()
	l, err := netnstest.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close lab: %v", err)
		}
	})
	return l
}

// Standard builds the standard topology, which is removed when the test ends.
func Standard(t testing.TB, o netnstest.Options) *netnstest.Standard {
	t.Helper()
	s, err := netnstest.NewStandard(New(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Eventually calls f until it returns nil, with a context that ends after patience. The test fails
// with f's last error then.
func Eventually(t testing.TB, patience time.Duration, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	await.NoError(t, patience, func() error { return f(ctx) })
}
