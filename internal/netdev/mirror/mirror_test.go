package mirror

import (
	"log/slog"
	"testing"

	"loxilb/internal/netdev/netlink"
	"loxilb/internal/netnstest"
	"loxilb/internal/netnstest/labtest"
)

func openHost(t *testing.T, h *netnstest.Host) *Mirror {
	t.Helper()
	ns, err := netlink.OpenNamespace(h.Path())
	if err != nil {
		t.Fatal(err)
	}
	m, err := Open(ns, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := ns.Close(); err != nil {
			t.Errorf("close namespace: %v", err)
		}
	})
	return m
}

// TestSurveyedAgain: what a subscription has missed may make routes depend on more than the destination.
func TestSurveyedAgain(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	m := openHost(t, a)
	if err := m.surveyOnce(); err != nil {
		t.Fatal(err)
	}
	if !m.ByDestination() {
		t.Fatal("not by destination before anything happened")
	}
	labtest.Run(t, a, "ip", "rule", "add", "from", "10.9.0.0/16", "table", "100")
	if _, err := m.resync(); err != nil {
		t.Fatal(err)
	}
	if m.Surveyed() || m.ByDestination() {
		t.Errorf("after everything was read again: surveyed %v, by destination %v", m.Surveyed(), m.ByDestination())
	}
	if err := m.surveyOnce(); err != nil {
		t.Fatal(err)
	}
	if m.ByDestination() || !m.Surveyed() {
		t.Error("the survey missed a rule")
	}
}

