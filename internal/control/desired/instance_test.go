package desired_test

import (
	"log/slog"
	"testing"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// TestRolesOverRestarts checks that roles survive a restart, and that a master that starts on
// another machine, or after a reboot, is a backup until its role is assigned again.
func TestRolesOverRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(place string, f func(*desired.State)) {
		t.Helper()
		s, err := desired.Open(dir, slog.New(slog.DiscardHandler), desired.WithOrigin(place))
		if err != nil {
			t.Fatal(err)
		}
		f(s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	put := func(s *desired.State, name string, role lb.Role) {
		t.Helper()
		_, _, err := s.Commit("test", func(tx *store.Tx) error {
			return s.Instances.Put(tx, lb.Instance{Name: name, Role: role})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(s *desired.State, first, second lb.Role) {
		t.Helper()
		here := s.Instances.OfThisNode(s.Snapshot())
		if here["a"].Role != first || here["b"].Role != second {
			t.Errorf("the instances are %+v, want the roles %s and %s", here, first, second)
		}
	}
	at("one", func(s *desired.State) {
		put(s, "a", lb.RoleMaster)
		put(s, "b", lb.RoleBackup)
		want(s, lb.RoleMaster, lb.RoleBackup)
	})
	at("one", func(s *desired.State) { want(s, lb.RoleMaster, lb.RoleBackup) })
	at("two", func(s *desired.State) {
		want(s, lb.RoleBackup, lb.RoleBackup)
		put(s, "a", lb.RoleMaster)
		want(s, lb.RoleMaster, lb.RoleBackup)
	})
	at("two", func(s *desired.State) { want(s, lb.RoleMaster, lb.RoleBackup) })
}
