package config

import (
	"log/slog"
	"strings"
	"sync"
)

// LevelTrace is below slog's debug: one line for each step of the control path.
const LevelTrace = slog.LevelDebug - 4

// LogLevel is the level of the log, which can change at run time. It stores its name, as several
// names mean the same level.
type LogLevel struct {
	mu    sync.Mutex
	word  string
	level slog.LevelVar
}

// NewLogLevel returns the level with a name.
func NewLogLevel(word string) (*LogLevel, error) {
	l := &LogLevel{}
	return l, l.Set(word)
}

// Set changes the level by name.
func (l *LogLevel) Set(word string) error {
	to, err := parseLevel(word)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.word = strings.ToLower(word)
	l.level.Set(to)
	return nil
}

// Level returns the lowest level that is logged.
func (l *LogLevel) Level() slog.Level { return l.level.Level() }

// String returns the name.
func (l *LogLevel) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.word
}

func parseLevel(s string) (slog.Level, error) {
	switch strings.ToLower(s) {
	case "trace":
		return LevelTrace, nil
	case "debug":
		return slog.LevelDebug, nil
	case "info", "notice":
		return slog.LevelInfo, nil
	case "warning", "warn":
		return slog.LevelWarn, nil
	case "error", "critical", "alert", "emergency":
		return slog.LevelError, nil
	}
	return 0, &Error{"--loglevel", s, "is unknown (allowed: trace, debug, info, notice, warning, error, critical, alert, emergency)"}
}
