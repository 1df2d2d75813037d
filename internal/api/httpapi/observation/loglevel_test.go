package observation_test

import (
	"log/slog"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/config"
	"loxilb/test/apitest"
)

// TestParams checks that each log level of the contract is accepted, shown, and set.
func TestParams(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	set := func(body string) int {
		return b.Call("POST", httpapi.BaseURL+"/config/params", body, "Content-Type", "application/json").Code
	}
	level := b.API.LogLevel.(*config.LogLevel)
	for word, want := range map[string]slog.Level{
		"trace": config.LevelTrace, "debug": slog.LevelDebug, "info": slog.LevelInfo, "notice": slog.LevelInfo, "warning": slog.LevelWarn,
		"error": slog.LevelError, "critical": slog.LevelError, "alert": slog.LevelError, "emergency": slog.LevelError,
	} {
		if code := set(`{"logLevel":"` + word + `"}`); code != 200 {
			t.Errorf("%s: got %d, want 200", word, code)
		}
		if got := apitest.GetAs[v1.Params](b, "/config/params").LogLevel; got != word || level.Level() != want {
			t.Errorf("%s is shown as %s, and is %s", word, got, level.Level())
		}
	}
	set(`{"logLevel":"info"}`)
	for _, body := range []string{`{"logLevel":"loud"}`, `{"logLevel":""}`, `{}`, `{"logLevel":1}`, `{"level":"info"}`, ``, `[]`} {
		if code := set(body); code != 400 {
			t.Errorf("%s: got %d, want 400", body, code)
		}
	}
	if level.String() != "info" {
		t.Errorf("a refused level is in effect: %s", level)
	}
}
