package lb

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"60": time.Minute, "60s": time.Minute, "1m": time.Minute, "1.5": 1500 * time.Millisecond, "500ms": 500 * time.Millisecond, "0": 0,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want no error, %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "s", "1.2.3", "60x", "99999999999999999999", "one"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// TestDurationsOfFields checks that durations have the same form in flags, in text and in JSON: a
// number of seconds, or a number with a unit.
func TestDurationsOfFields(t *testing.T) {
	t.Parallel()
	for _, f := range Fields() {
		if _, ok := f.form.(interface {
			parseFlag(*Service, *Field[Service], string) error
		}); !ok && !f.IsTime() || f.IsList() {
			continue
		}
		for _, text := range []string{"60", "60s", "1m", "1m0s"} {
			var byFlag, byText, byValue Service
			if err := f.SetFlag(&byFlag, text); err != nil {
				t.Errorf("--%s=%s: %v", f.Flag, text, err)
			}
			if err := f.form.parse(&byText, &f, text); err != nil {
				t.Errorf("%s=%s: %v", f.Text, text, err)
			}
			if err := f.SetValue(&byValue, text); err != nil {
				t.Errorf("%s: %q: %v", f.Property, text, err)
			}
			if !f.Same(&byFlag, &byText) || !f.Same(&byFlag, &byValue) || f.IsDefault(&byFlag) {
				t.Errorf("%s is read differently: %v, %v, %v", f.Name, f.Show(&byFlag), f.Show(&byText), f.Show(&byValue))
			}
		}
	}
}
