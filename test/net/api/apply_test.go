package api_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// TestConfirmKilled checks that an unconfirmed change is rolled back although the daemon was killed
// before the deadline, and that a confirmed one is kept. It also checks that applying a saved file
// changes nothing, and that one request applies 10,000 services.
func TestConfirmKilled(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	dir := t.TempDir()
	file := func(name, vip string) string {
		path := filepath.Join(dir, name)
		text := "apiVersion: netlox/v1\nkind: lb\nspec:\n  serviceArguments: {externalIP: " + vip +
			", port: 2020, protocol: tcp}\n  endpoints:\n  - {endpointIP: 31.31.31.1, targetPort: 5001, weight: 1}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	first, second := file("1.yaml", "20.20.20.1"), file("2.yaml", "20.20.20.2")
	r.Loxicmd("apply -f %s --confirm=600s", first)
	r.Loxicmd("confirm")
	due := time.Now().Add(5 * time.Second) // a busy machine takes seconds to apply and to kill
	r.Loxicmd("apply -f %s --confirm=5s", second)
	r.Kill()
	// The deadline expires while no daemon runs. The change is in effect until the next start.
	await.Steady(t, time.Until(due), func() error {
		_, err := r.Ask("20.20.20.2:2020")
		return err
	})
	r.Restart()
	if out := r.Loxicmd("get lb"); !strings.Contains(out, "20.20.20.1") || strings.Contains(out, "20.20.20.2") {
		t.Errorf("after the start:\n%s", out)
	}
	r.WantAnswers("20.20.20.1:2020", "ep1")
	if out := r.Loxicmd("get revisions"); !strings.Contains(out, "automatic rollback") || !strings.Contains(out, "root") {
		t.Errorf(`got %v, want "automatic rollback" in out, "root" in out`, out)
	}

	r.Loxicmd("apply -f %s --confirm=3s", second)
	r.Kill()
	r.Restart() // before the deadline
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if out := r.Loxicmd("get lb"); strings.Contains(out, "20.20.20.2") {
			return errors.New(out)
		}
		return nil
	})

	var many strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&many,
			"---\napiVersion: netlox/v1\nkind: lb\nspec:\n  serviceArguments: {externalIP: 20.21.%d.%d, port: 80, protocol: tcp}\n  endpoints:\n  - "+
				"{endpointIP: 31.31.31.1, targetPort: 5001, weight: 1}\n",
			i/250, 1+i%250)
	}
	lots, saved := filepath.Join(dir, "lots.yaml"), filepath.Join(dir, "saved.yaml")
	if err := os.WriteFile(lots, []byte(many.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if out := r.Loxicmd("apply -f %s", lots); !strings.Contains(out, "10000 added") {
		t.Errorf(`got %v, want "10000 added" in out`, out)
	}
	t.Logf("10,000 services applied in %v", time.Since(start).Round(time.Millisecond))
	r.Loxicmd("save -f %s", saved)
	if out := r.Loxicmd("plan -f %s --prune", saved); out != "nothing to do\n" {
		t.Errorf(`got %v, want out == "nothing to do\n"`, out[:min(len(out), 500)])
	}
	r.Loxicmd("rollback")
	if out := r.Loxicmd("get lb"); strings.Contains(out, "20.21.") || !strings.Contains(out, "20.20.20.1") {
		t.Errorf(`got %v, want no "20.21." in out, "20.20.20.1" in out`, out[:min(len(out), 500)])
	}
}
