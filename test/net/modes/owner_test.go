package modes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// TestControllerService checks that a controller's service refuses clients while it has no
// endpoint, also after a restart. In mode hostonearm, it has the VIP and the machine's addresses.
func TestControllerService(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	rig.ServeSources(r)
	post := func(endpoints string) {
		t.Helper()
		body := fmt.Sprintf(
			`{"serviceArguments":{"externalIP":"%s","port":7000,"protocol":"tcp","mode":5,"managed":true,"owner":"kube-1","monitor":true},"endpoints":[%s]}`,
			rig.VIP4, endpoints)
		answer, err := r.LB.HTTPClient(rig.Patience).Post("http://127.0.0.1:11111/netlox/v1/config/loadbalancer", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != 200 {
			t.Fatalf("POST %s: %s %s (%v)", body, answer.Status, text, err)
		}
	}
	refused := func() {
		t.Helper()
		for _, address := range []string{rig.Join(rig.VIP4, 7000), "100.100.100.254:7000"} {
			labtest.Eventually(t, rig.Patience, func(ctx context.Context) error {
				c, err := r.Client.DialContext(ctx, "tcp", address)
				if err == nil {
					return errors.Join(fmt.Errorf("%s answers without an endpoint", address), c.Close())
				}
				if !errors.Is(err, syscall.ECONNREFUSED) {
					return fmt.Errorf("without an endpoint: %w", err)
				}
				return nil
			})
		}
	}
	post("")
	refused()
	r.Stop()
	r.Restart()
	refused()
	post(`{"endpointIP":"31.31.31.1","targetPort":7000,"weight":1}`)
	r.WantSource(r.Client, "tcp", rig.Join(rig.VIP4, 7000), "31.31.31.254")
	r.WantSource(r.Client, "tcp", "100.100.100.254:7000", "31.31.31.254")
	post("")
	refused()
}
