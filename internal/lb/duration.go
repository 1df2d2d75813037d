package lb

import (
	"strings"
	"time"
)

// ParseDuration reads a duration as people write it: a number of seconds (60), or with units
// (500ms, 60s, 1m30s).
func ParseDuration(text string) (time.Duration, error) {
	if text != "" && strings.Trim(text, "0123456789.") == "" {
		text += "s"
	}
	return time.ParseDuration(text)
}
