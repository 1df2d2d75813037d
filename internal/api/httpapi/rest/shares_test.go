package rest

import (
	"testing"

	"loxilb/internal/api/access"
)

// TestStreamsOfUsers checks that one user leaves streams to others and to admins, and that each
// closed stream frees its place.
func TestStreamsOfUsers(t *testing.T) {
	t.Parallel()
	f := Shares{Limits: EventStreams()}
	role := map[bool]access.Role{false: access.View, true: access.Admin}
	enter := func(name string, admin bool, times int) (entered int) {
		for range times {
			if f.Enter(&Principal{Name: name, Role: role[admin]}) == nil {
				entered++
			}
		}
		return entered
	}
	for _, c := range []struct {
		name  string
		admin bool
		want  int
	}{{"a", false, 16}, {"b", false, 16}, {"c", false, 16}, {"d", false, 0}, {"root", true, 16}} {
		if got := enter(c.name, c.admin, 100); got != c.want {
			t.Errorf("%s has %d streams, want %d", c.name, got, c.want)
		}
	}
	f.Leave(&Principal{Name: "a", Role: access.View})
	if enter("a", false, 2) != 1 || enter("root", true, 1) != 0 {
		t.Error("a released place cannot be used exactly once")
	}
}
