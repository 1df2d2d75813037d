package net_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"loxilb/internal/netnstest"
	"loxilb/internal/netnstest/labtest"
)

// TestLimits: a client has as many connections as it may, one more is refused, also after a restart, until one is closed.
func TestLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	for _, h := range r.Endpoints {
		if err := h.ServeTCP(":5001", netnstest.Echo); err != nil {
			t.Fatal(err)
		}
	}
	r.loxicmd("create lb %s --tcp=7:5001 --client-connections=2 --endpoints=%s", vip4, endpoints4())
	refused := func() error {
		c, err := r.Client.DialContext(t.Context(), "tcp", join(vip4, 7))
		if err == nil {
			return errors.Join(c.Close(), fmt.Errorf("a third connection is made"))
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		return nil
	}
	first := r.dial(join(vip4, 7))
	second := r.dial(join(vip4, 7))
	if err := refused(); err != nil {
		t.Error(err)
	}
	r.Kill()
	r.restart()
	if err := refused(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(exchange(second, "still here"), first.Close()); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, patience, func(ctx context.Context) error {
		c, err := r.Client.DialContext(ctx, "tcp", join(vip4, 7))
		if err == nil {
			err = exchange(c, "hello")
		}
		return err
	})
	if n := r.metric("drops_total", "reason=connection-limit"); n < 2 {
		t.Errorf("%v packets are counted as beyond the limit", n)
	}
}
