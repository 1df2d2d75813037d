package store

import (
	"strings"
	"testing"
)

// TestDescribe checks that a revision without a name is described by its changes.
func TestDescribe(t *testing.T) {
	t.Parallel()
	created := func(kind, key string) undoRecord { return undoRecord{Kind: kind, Key: key} }
	changed := func(kind, key string) undoRecord { return undoRecord{Kind: kind, Key: key, Format: 1} }
	deleted := func(kind, key string) undoRecord { return undoRecord{Kind: kind, Key: key, Format: 1, Gone: true} }
	for want, list := range map[string][]undoRecord{
		"create service 20.20.20.1:80/tcp":                                             {created("service", "20.20.20.1:80/tcp")},
		"change service 20.20.20.1:80/tcp":                                             {changed("service", "20.20.20.1:80/tcp")},
		"delete service 100.100.100.1:22/tcp":                                          {deleted("service", "100.100.100.1:22/tcp")},
		"create 2 services, delete 1 drain":                                            {created("service", "a"), deleted("drain", "b"), created("service", "c")},
		"create service " + strings.Repeat("x", maxDescription-len("create service ")): {created("service", strings.Repeat("x", 999))},
	} {
		if got := describe(list); got != want {
			t.Errorf("the description is %q, want %q", got, want)
		}
	}
}
