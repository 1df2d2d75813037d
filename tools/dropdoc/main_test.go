package main

import (
	"errors"
	"strings"
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
		t.Errorf("the result differs (-want +got):\n%s", d)
	}
	if _, err := values("enum drop_reason {\n\tDROP_A,\n};", "drop_reason", "DROP_", "NONE"); !errors.Is(err, errNoComment) {
		t.Errorf("a value without comment: %v", err)
	}
	if _, err := values("enum other {", "drop_reason", "DROP_", "NONE"); err == nil {
		t.Error("a header without the enum is accepted")
	}
}

// TestSource checks that a reason without a remedy is an error, and that its text is used without
// Markdown.
func TestSource(t *testing.T) {
	t.Parallel()
	const header = "enum drop_reason {\n\tDROP_NONE, /* */\n\tDROP_NO_ROUTE, /* no \"route\" */\n\tDROP_REASONS\n};"
	const guide = "| reason | usual cause | what to do |\n|---|---|---|\n| `a`, `no-route` (many) | none, see [adr](x.md#y) | `ip route` |\n"
	code, err := source(header, guide)
	want := `{Name: "no-route", Meaning: "no \"route\"", Cause: "none, see adr", Remedy: "ip route"},`
	if err != nil || !strings.Contains(string(code), want) {
		t.Errorf("%s %v\nwant %s", code, err, want)
	}
	if _, err := source(header, "| reason | usual cause | what to do |\n"); err == nil {
		t.Error("a reason without a remedy is accepted")
	}
}
