package v1

import (
	"encoding/json"
	"errors"
	"testing"
)

// TestSeconds checks that a time that the contract defines as a number can have a unit, and that
// responses hold the number.
func TestSeconds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Seconds{`60`: 60, `"60"`: 60, `"60s"`: 60, `"1m"`: 60, `"1h30m"`: 5400, `null`: 0, `-1`: -1, `"-1s"`: -1} {
		var a ServiceArguments
		if err := json.Unmarshal([]byte(`{"inactiveTimeOut":`+text+`}`), &a); err != nil || a.InactiveTimeOut != want {
			t.Errorf("%s: got %d, %v, want %d", text, a.InactiveTimeOut, err, want)
		}
	}
	for _, text := range []string{`"soon"`, `"1500ms"`, `1.5`, `true`, `"999999h"`, `""`, `{}`} {
		var a struct {
			Arguments ServiceArguments `json:"arguments"`
		}
		var wrong *json.UnmarshalTypeError
		if err := json.Unmarshal([]byte(`{"arguments":{"inactiveTimeOut":`+text+`}}`), &a); !errors.As(err, &wrong) || wrong.Field != "arguments.inactiveTimeOut" {
			t.Errorf("%s: got %v, want an error about arguments.inactiveTimeOut", text, err)
		}
	}
	if out, err := json.Marshal(Seconds(60)); err != nil || string(out) != "60" {
		t.Errorf(`got %s %v, want no error, out == "60"`, out, err)
	}
	var a ServiceArguments
	if err := json.Unmarshal([]byte(`{"probeInterval":5,"slowStart":"30s"}`), &a); err != nil || a.ProbeInterval != "5" || a.SlowStart != "30s" {
		t.Errorf(`got %q %q %v, want no error, a.ProbeInterval == "5", a.SlowStart == "30s"`,
			a.ProbeInterval, a.SlowStart, err)
	}
}
