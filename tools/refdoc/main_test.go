package main

import (
	"os"
	"strings"
	"testing"
)

// TestFields checks that the fields that users set most are listed, and those without a flag
// described.
func TestFields(t *testing.T) {
	t.Parallel()
	openapi, err := os.ReadFile("../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := fields(string(openapi))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"- `--mode`, `mode`: 0 `default`, 1 `onearm`", "- `--select`, `sel`: ", "- `/endpointIP`: Of either", "`n2` -",
		"- `--probe-interval`, `probeInterval`\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %s", want)
		}
	}
}

// TestEvents checks that each kind of event is listed, and that a type without a comment is an
// error.
func TestEvents(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile("../../internal/event/event.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := events(string(code))
	if err != nil || !strings.Contains(page, "- `peer`: another node of the cluster that began or ended to exchange connections with this node.\n") {
		t.Errorf("got %v:\n%s, want no error, and a line for `peer` with the comment of its type", err, page)
	}
	if _, err := events(strings.Replace(string(code), "// Health is", "// Health has", 1)); err == nil {
		t.Error("a type without a sentence is accepted")
	}
}

// TestManual checks that the manual pages are current, and explain a flag once.
func TestManual(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"loxicmd.1": manual(), "loxilb.8": daemonManual()} {
		page, err := os.ReadFile("../../docs/man/" + name)
		if err != nil || string(page) != want {
			t.Errorf("docs/man/%s is not what the commands make (%v): tools/go generate ./tools/refdoc", name, err)
		}
	}
	page := manual()
	for text, want := range map[string]int{`.BI "\-l, \-\-selector"`: 1, ".SS create lb IP\n": 1, `.BI "\-\-slow\-start"`: 1} {
		if n := strings.Count(page, text); n != want {
			t.Errorf("%s is there %d times", text, n)
		}
	}
}
