package services_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// TestLimits checks that a client can have as many connections as its limit. The next one is
// refused, also after a restart, until one is closed.
func TestLimits(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	for _, h := range r.Endpoints {
		if err := h.ServeTCP(":5001", netnstest.Echo); err != nil {
			t.Fatal(err)
		}
	}
	r.Loxicmd("create lb %s --tcp=7:5001 --client-connections=2 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	refused := func() error {
		c, err := r.Client.DialContext(t.Context(), "tcp", rig.Join(rig.VIP4, 7))
		if err == nil {
			return errors.Join(c.Close(), fmt.Errorf("a third connection opens"))
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		return nil
	}
	first := r.Dial(rig.Join(rig.VIP4, 7))
	second := r.Dial(rig.Join(rig.VIP4, 7))
	if err := refused(); err != nil {
		t.Error(err)
	}
	r.Kill()
	r.Restart()
	if err := refused(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(rig.Exchange(second, "still here"), first.Close()); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, rig.Patience, func(ctx context.Context) error {
		c, err := r.Client.DialContext(ctx, "tcp", rig.Join(rig.VIP4, 7))
		if err == nil {
			err = rig.Exchange(c, "hello")
		}
		return err
	})
	if n := r.Metric("drops_total", "reason=connection-limit"); n < 2 {
		t.Errorf("%v packets are counted as exceeding the limit", n)
	}
}
