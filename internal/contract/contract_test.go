package contract

import (
	"strings"
	"testing"
)

// TestRows checks the number of rows of each kind, and that each is unique.
func TestRows(t *testing.T) {
	t.Parallel()
	once := func(kind string, want int, add func(func(key string, s State, note string))) {
		seen, contract := map[string]bool{}, 0
		add(func(key string, s State, note string) {
			if seen[key] {
				t.Errorf("%s %q is listed twice", kind, key)
			}
			seen[key] = true
			if s != Ours {
				contract++
			}
			if s == Differs && note == "" {
				t.Errorf("%s %q differs, and has no note", kind, key)
			}
			if s == Unsupported && !strings.ContainsAny(note, ":,") {
				t.Errorf("%s %q is missing: %q does not say what to use instead", kind, key, note)
			}
		})
		if contract != want {
			t.Errorf("%d rows of %ss, want the contract's %d", contract, kind, want)
		}
	}
	once("operation", 112, // with config/k8smeta, which kube-loxilb requests
		func(add func(string, State, string)) {
			for _, o := range AllOperations() {
				add(o.Method+" "+o.Path, o.State, o.Note)
			}
		})
	once("command", 72, func(add func(string, State, string)) {
		for _, c := range AllCommands() {
			add(c.Path, c.State, c.Note)
		}
	})
	once("flag", 58, func(add func(string, State, string)) {
		for _, f := range AllFlags() {
			add(f.Name, f.State, f.Note)
		}
	})
}

// TestValues checks that each value is listed once, with a description.
func TestValues(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, v := range AllValues() {
		if seen[v.Property] || v.Note == "" {
			t.Errorf("%s is listed twice, or has no note", v.Property)
		}
		seen[v.Property] = true
	}
}
