package main

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValues(t *testing.T) {
	t.Parallel()
	got, err := values(`enum drop_reason {
	DROP_NONE, /* not dropped */
	DROP_NO_ROUTE, /* no route to the endpoint
			* or the client */
	DROP_A, /* a | b */
	DROP_REASONS
};`, "drop_reason", "DROP_", "NONE")
	if err != nil {
		t.Fatal(err)
	}
	want := []value{{"no-route", "no route to the endpoint or the client"}, {"a", "a | b"}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(value{})); d != "" {
		t.Error(d)
	}
	if _, err := values("enum drop_reason {\n\tDROP_A,\n};", "drop_reason", "DROP_", "NONE"); !errors.Is(err, errNoComment) {
		t.Errorf("a value without comment: %v", err)
	}
	if _, err := values("enum other {", "drop_reason", "DROP_", "NONE"); err == nil {
		t.Error("a header without the enum is taken")
	}
}
